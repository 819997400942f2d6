"""Elements of every kind beside Grain: what becomes in its workers of what bushel keeps.

`tests/contract/test_elements.py` holds that bushel's workers, threads and caches change none of
them. This table says which of them Grain's workers do, and is documented in docs/from-grain.md.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE_SECONDS
from tests.thorough import THOROUGH
from tests.workers import elements, library_elements

# Beside this, all arrays come as a subclass of numpy's (`SharedMemoryArray`).
KEYS_SORTED = "differs: keys come sorted"
CLASS_LOST = "differs: arrays of other classes come as plain ones, without what they know"
IN_GRAIN = {
    "not a number": KEYS_SORTED,
    "order of keys": KEYS_SORTED,
    "every dtype": KEYS_SORTED,
    "big-endian": KEYS_SORTED,
    "object arrays": KEYS_SORTED,
    "small floats": KEYS_SORTED,
    "jax arrays": KEYS_SORTED,
    "nested": "raises: keys of several types cannot be sorted",
    "memoryviews": "lost: what cannot be pickled is left out, and said on the error output",
    "read-only": "differs: arrays can be written to",
    "masked": CLASS_LOST,
    "masked in other ways": CLASS_LOST,
    "record array": CLASS_LOST,
    "characters": CLASS_LOST,
    "an array class with attributes": CLASS_LOST,
    "an array class of the user's own": CLASS_LOST,
    "matrix": CLASS_LOST,
    "memory map": CLASS_LOST,
}


def test_what_grain_makes_of_them() -> None:
    # (To import torch, jax and scipy takes longer than all the rest.)
    kinds = [kind for kind in elements.MAKE if THOROUGH or kind not in library_elements.MAKE]
    root = Path(__file__).parent.parent.parent
    ran = subprocess.run(
        [sys.executable, "-m", "tests.grain.elements_by_workers", *kinds],
        capture_output=True,
        text=True,
        cwd=root,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        timeout=PATIENCE_SECONDS,
    )
    assert not ran.returncode, ran.stderr
    expected = {kind: IN_GRAIN.get(kind, "same").partition(":")[0] for kind in kinds}
    assert json.loads(ran.stdout.splitlines()[-1]) == expected
