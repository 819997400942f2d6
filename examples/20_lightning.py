"""Lightning: `fit` on a pipeline; its own checkpoints go on in the middle of an epoch."""

import logging
import tempfile
import warnings

import lightning
import numpy as np
import torch
from pictures import load_pictures

import bushel

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning")  # tips about workers of torch's DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self, pixels):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(
            torch.nn.Flatten(),
            torch.nn.Linear(pixels, 64),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 10),
        )

    def training_step(self, batch):
        return torch.nn.functional.cross_entropy(self.layers(batch["image"]), batch["label"])

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def augment(record, rng):
    noise = rng.normal(0, 8, record["image"].shape)
    return record | {"image": ((record["image"] + noise) / 255).astype(np.float32)}


def loader(columns):
    ds = bushel.MapDataset.source(columns).seed(5).shuffle().random_map(augment)
    # It has a length, a state for Lightning's checkpoints, and the next epoch in each epoch.
    return bushel.torch.loader(ds.batch(32, drop_remainder=True))


def fit(columns, folder, checkpoint=None):
    saved = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, "{step}", every_n_train_steps=30, save_top_k=-1
    )
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=4,
        callbacks=[saved],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    model = Classifier(columns["image"][0].size)
    trainer.fit(model, loader(columns), ckpt_path=checkpoint)
    return model


def main():
    images, labels = load_pictures()["train"]
    columns = {"image": images, "label": labels.astype(np.int64)}
    with tempfile.TemporaryDirectory() as folder:
        whole = fit(columns, folder)
        resumed = fit(columns, folder, f"{folder}/step=60.ckpt")
    one, other = whole.state_dict(), resumed.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    print(f"gone on with at step 60 of epochs of {len(loader(columns))}: the same, bit for bit")
    images, labels = load_pictures()["test"]
    with torch.no_grad():
        guesses = whole.layers(torch.tensor(images) / 255).argmax(1)
    print(f"accuracy {(guesses == torch.tensor(labels)).float().mean():.2%}")


if __name__ == "__main__":
    main()
