"""A program that trains with Lightning, stops, goes on, and prints what came of it as JSON."""

import json
import logging
import tempfile
import warnings
from pathlib import Path
from typing import Any

import tests.frameworks.no_torchvision  # noqa: F401  # Before those who look for it.

# isort: split
import lightning
import numpy as np
import torch

import bushel
from bushel import MapDataset

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
ROWS = {"id": np.arange(70), "x": np.random.default_rng(0).normal(size=(70, 3)).astype(np.float32)}


class Model(lightning.LightningModule):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(3, 1)
        self.seen: list[list[int]] = []

    def training_step(self, batch: Any) -> Any:
        self.seen.append(batch["id"].tolist())
        return (self.layer(batch["x"]) ** 2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def shuffled() -> Any:
    return MapDataset.source(ROWS).seed(1).shuffle()


def stream() -> Any:
    return shuffled().repeat().to_iter_dataset().filter(lambda row: row["id"] % 3 > 0).batch(8)


DATA: dict[str, tuple[Any, int | None]] = {
    "map": (lambda: shuffled().batch(8), None),
    "stream": (stream, 7),
}


def fit(make: Any, steps: int | None, folder: str, upto: int, start: Path | None = None) -> Any:
    saved = lightning.pytorch.callbacks.ModelCheckpoint(
        folder, every_n_train_steps=4, save_top_k=-1
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=3, max_steps=upto, callbacks=[saved], **quiet
    )
    model = Model()
    trainer.fit(model, bushel.torch.loader(make(), steps_per_epoch=steps), ckpt_path=start)
    return model


def main() -> None:
    told: dict[str, Any] = {}
    for name, (make, steps) in DATA.items():
        with tempfile.TemporaryDirectory() as folder:
            whole = fit(make, steps, folder, -1)
            (path,) = Path(folder).glob("*step=12.ckpt")  # In the second epoch.
            resumed = fit(make, steps, folder, -1, path)
        one, other = (each.state_dict()["layer.weight"].tolist() for each in (whole, resumed))
        told[name] = {
            "batches": len(whole.seen),
            "rest": whole.seen[12:] == resumed.seen,
            "equal": one == other,
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
