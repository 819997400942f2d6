"""A program that trains with the `Trainer` of transformers, and prints what came of it.

The last line is JSON. Models are made of a config: nothing is downloaded.
"""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import tests.frameworks.no_torchvision  # noqa: F401  # Before those who look for it.

# isort: split
import numpy as np
import torch
import transformers

import bushel
from bushel import MapDataset, MultiprocessingOptions
from bushel.errors import StateError

transformers.utils.logging.set_verbosity_error()
ROWS = {
    "input_ids": np.random.default_rng(0).integers(0, 50, (70, 8)),
    "id": np.arange(70),
}
SEEN: list[list[int]] = []


class Model(transformers.GPT2LMHeadModel):  # type: ignore[misc]
    """Takes note of the records that it is trained on."""

    def forward(
        self, input_ids: Any = None, labels: Any = None, id: Any = None, **more: Any
    ) -> Any:
        if self.training:
            SEEN.append(id.tolist())
        return super().forward(input_ids=input_ids, labels=labels, **more)


def model() -> Any:
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_positions": 8, "n_embd": 8, "n_layer": 1, "n_head": 1}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return Model(transformers.GPT2Config(**sizes, **ends, loss_type="ForCausalLM"))


def pairs() -> Any:
    ds = MapDataset.source(ROWS).seed(1).shuffle()
    return ds.map(lambda row: {**row, "labels": row["input_ids"]})


def stream() -> Any:
    return pairs().repeat().to_iter_dataset().filter(lambda row: row["id"] % 3 > 0).batch(8)


# The data, and what is said of steps.
DATA: dict[str, tuple[Any, dict[str, Any]]] = {
    "map": (lambda: pairs().batch(8), {"num_train_epochs": 2}),
    "accumulated": (
        lambda: pairs().batch(8),
        {"num_train_epochs": 3, "gradient_accumulation_steps": 2},
    ),
    "at the end of an epoch": (lambda: pairs()[:48].batch(8), {"num_train_epochs": 2}),
    "endless stream": (stream, {"max_steps": 11}),
    "finite stream": (
        lambda: pairs().to_iter_dataset().filter(lambda row: row["id"] % 2).batch(8),
        {"max_steps": 13},
    ),
    "workers": (
        lambda: (
            pairs().batch(8).to_iter_dataset().mp_prefetch(MultiprocessingOptions(num_workers=2))
        ),
        {"num_train_epochs": 2, "restore_callback_states_from_checkpoint": True},
    ),
    "loader": (lambda: bushel.torch.loader(stream(), steps_per_epoch=7), {"num_train_epochs": 2}),
}


def trainer(folder: str, data: Any, **arguments: Any) -> Any:
    own = {"per_device_train_batch_size": 8, "use_cpu": True, "report_to": [], "disable_tqdm": True}
    saving = {"save_strategy": "steps", "save_steps": 6, "logging_strategy": "no"}
    columns = {"remove_unused_columns": False}
    args = transformers.TrainingArguments(folder, **own, **saving, **columns, **arguments)
    return bushel.huggingface.Trainer(model(), args, train_dataset=data)


def weights(made: Any) -> list[Any]:
    return [value.tolist() for value in made.model.state_dict().values()]


def trained(make: Any, arguments: dict[str, Any], folder: str) -> dict[str, Any]:
    SEEN.clear()
    whole = trainer(folder, make(), **arguments)
    steps = whole.train().global_step
    seen = list(SEEN)
    state = json.loads(Path(folder, "checkpoint-6", "trainer_state.json").read_text())
    SEEN.clear()
    resumed = trainer(folder, make(), **arguments)
    resumed.train(resume_from_checkpoint=str(Path(folder, "checkpoint-6")))
    # Two at a time, but for the last of the nine of an epoch.
    taken = 11 if "gradient_accumulation_steps" in arguments else 6
    return {
        "steps": steps,
        "batches": len(seen),
        "rest": seen[taken:] == SEEN,
        "equal": weights(whole) == weights(resumed),
        "different": len({tuple(batch) for batch in seen}) > len(seen) * 0.9,
        "epoch": [whole.state.epoch, resumed.state.epoch],
        "position": state["stateful_callbacks"]["_DataPosition"]["attributes"]["step"],
    }


def refused(folder: str) -> str:
    """A checkpoint that was made with other data."""
    rows = [{"input_ids": row, "labels": row, "id": 0} for row in ROWS["input_ids"]]
    trainer(folder, rows, max_steps=6).train()
    again = trainer(folder, pairs().batch(8), max_steps=8)
    try:
        again.train(resume_from_checkpoint=True)
    except StateError as error:
        return str(error)
    return "went on"


def evaluated(folder: str) -> list[float]:
    made = trainer(folder, pairs().batch(8), max_steps=2)
    losses = [made.evaluate(pairs().batch(8))["eval_loss"] for _ in range(2)]
    rows = made.predict(pairs().batch(8)).predictions
    return [*losses, *rows.shape]


def rank(folder: str, steps: int, resume: bool) -> None:
    """One rank of a job; prints the records of each of its batches."""
    ds = MapDataset.source(ROWS).seed(1).shuffle().repeat()
    ds = ds.map(lambda row: {**row, "labels": row["input_ids"]})
    data = ds.lanes(4).filter(lambda row: row["id"] % 3 > 0).batch(8)
    job = {"ddp_backend": "gloo"} if "WORLD_SIZE" in os.environ else {}
    made = trainer(folder, data, max_steps=steps, **job)
    made.train(resume_from_checkpoint=resume or None)
    print(json.dumps(SEEN))


def main() -> None:
    if "--rank" in sys.argv:
        return rank(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "resume")
    told: dict[str, Any] = {}
    for name, (make, arguments) in DATA.items():
        with tempfile.TemporaryDirectory() as folder:
            told[name] = trained(make, arguments, folder)
    with tempfile.TemporaryDirectory() as folder:
        told["refused"] = refused(folder)
        told["evaluated"] = evaluated(folder)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
