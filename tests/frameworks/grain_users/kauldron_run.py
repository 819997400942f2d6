"""kauldron: a pipeline of `kd.data.py`, and a training that stops and goes on."""

# isort: off
from tests.frameworks.grain_users import which  # First of all.

# isort: on
import dataclasses
import itertools
import json
import tempfile
from typing import Any

import grain
import jax
import numpy as np
import optax
from flax import linen as nn
from kauldron import kd

NUMBERS = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)


class Rows:
    def __len__(self) -> int:
        return 100

    def __getitem__(self, key: int) -> Any:
        return {"x": NUMBERS[key], "label": np.int64(key % 3)}

    def __repr__(self) -> str:
        return "Rows"


class Model(nn.Module):  # type: ignore[misc]
    x: kd.kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return {"logits": nn.Dense(3)(x)}


PIPELINE = kd.data.py.DataSource(
    data_source=Rows(),
    shuffle=True,
    num_epochs=None,
    batch_size=8,
    seed=1,
    num_workers=which.WORKERS,
    transforms=[kd.data.Elements(keep=["x", "label"])],
)


def train(folder: str, steps: int) -> str:
    labels = [kd.data.Rearrange(key="label", pattern="-> 1")]
    loss = kd.losses.SoftmaxCrossEntropyWithIntLabels(logits="preds.logits", labels="batch.label")
    trainer = kd.train.Trainer(
        seed=1,
        train_ds=dataclasses.replace(PIPELINE, transforms=labels),
        model=Model(),
        num_train_steps=steps,
        workdir=folder,
        train_losses={"loss": loss},
        optimizer=optax.adam(1e-2),
        checkpointer=kd.ckpts.Checkpointer(save_interval_steps=5),
        log_metrics_every=100,
    )
    state, _ = trainer.train()
    return which.digest(jax.tree.leaves(state.params))


def main() -> None:
    batches = list(itertools.islice(PIPELINE, 20))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = train(one, 20)
        train(other, 10)
        resumed = train(other, 20)
    told = {
        "grain": grain.__name__,
        "count": len(batches),
        "batches": which.digest(part for batch in batches for part in jax.tree.leaves(batch)),
        "weights": whole,
        "resumed": resumed == whole,
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()
