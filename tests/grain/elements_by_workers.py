"""A program: what becomes of elements of every kind in a worker of Grain's.

    python -m tests.grain.elements_by_workers "none" "masked" ...

Prints one JSON object: "same", "lost" (it never comes), "raises", or "differs", by kind. An array
that comes as one of Grain's own class counts as the same where all else is.
"""

import json
import sys
import warnings
from collections import OrderedDict
from typing import Any

import grain
import numpy as np
from absl import flags
from grain.multiprocessing import SharedMemoryArray

from tests.workers import elements


class Numbered:
    """A source of elements, each with its number: one that is lost is noticed."""

    def __init__(self, kinds: list[str]) -> None:
        self._kinds = kinds

    def __len__(self) -> int:
        return len(self._kinds)

    def __getitem__(self, key: int) -> Any:
        return key, elements.MAKE[self._kinds[key]]()


def _plain(value: Any) -> Any:
    """The same with arrays of numpy's in the place of Grain's."""
    if type(value) is SharedMemoryArray:
        return value.view(np.ndarray)
    if type(value) in (dict, OrderedDict):
        return type(value)((key, _plain(item)) for key, item in value.items())
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_plain, value))
    return value


def _compared(kind: str, got: Any) -> str:
    try:
        elements.assert_same(_plain(got), elements.MAKE[kind]())
    except (AssertionError, AttributeError, TypeError, ValueError):
        return "differs"
    return "same"


def main(kinds: list[str]) -> dict[str, str]:
    """What becomes of these kinds."""
    found: dict[str, str] = {}
    options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
    while left := [kind for kind in kinds if kind not in found]:
        ds = grain.MapDataset.source(Numbered(left)).to_iter_dataset(options, allow_nones=True)
        iterator = iter(ds.mp_prefetch(grain.MultiprocessingOptions(num_workers=1)))
        came = 0
        try:
            for number, got in iterator:
                found.update(dict.fromkeys(left[came:number], "lost"))
                found[left[number]], came = _compared(left[number], got), number + 1
            found.update(dict.fromkeys(left[came:], "lost"))
        except Exception:
            found[left[came]] = "raises"
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    flags.FLAGS([""])
    print(json.dumps(main(sys.argv[1:])))
