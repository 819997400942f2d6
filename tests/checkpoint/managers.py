"""Saving and restoring by a manager, as training programs do."""

from typing import Any

import numpy as np
import orbax.checkpoint as ocp

from bushel.checkpoint import CheckpointRestore, CheckpointSave

MODEL = {"weights": np.arange(3.0)}


def save(manager: ocp.CheckpointManager, step: int, iterator: Any, **more: Any) -> None:
    model = ocp.args.StandardSave(MODEL)
    args = ocp.args.Composite(model=model, data=CheckpointSave(iterator))
    assert manager.save(step, args=args, **more)


def restore(manager: ocp.CheckpointManager, step: int | None, iterator: Any) -> Any:
    restored = manager.restore(step, args=ocp.args.Composite(data=CheckpointRestore(iterator)))
    assert restored["data"] is iterator
    return iterator
