"""Mistakes that people make, and what they are told: what is wrong, and what to write."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bushel import MapDataset, ReadOptions, ShardOptions
from bushel.samplers import SequentialSampler

# What somebody writes; the type of the error; and a part of its text, or of its notes.
Mistake = tuple[Callable[[], Any], type[Exception], str]

# They are given to functions that say so; what they are is unknown to a type checker.
numbers: Any = MapDataset.range(10)
stream: Any = numbers.to_iter_dataset(ReadOptions(0, 0))
documents: Any = MapDataset.source(
    [{"tokens": np.arange(3)}, {"tokens": np.arange(30)}]
).to_iter_dataset(ReadOptions(0, 0))
one = SequentialSampler(1, ShardOptions(0, 1))


def assert_told(mistake: Mistake) -> None:
    """Fails unless what somebody writes raises such an error, which says so."""
    write, kind, text = mistake
    with pytest.raises(kind) as caught:
        write()
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert text in said
    # Nothing of the inside.
    assert "NodeDataset" not in said
