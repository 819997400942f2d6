"""`derived_seed`: the seed that numpy's `SeedSequence` would give, without numpy's generators."""

import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bushel.core.derived_seed import derived_seed

NUMBERS = st.integers(0, 3) | st.integers(0, 2**32) | st.integers(0, 2**130)


@given(st.lists(NUMBERS, min_size=1, max_size=12))
def test_it_is_the_first_word_of_numpys_seed_sequence(entropy: list[int]) -> None:
    expected = np.random.SeedSequence(entropy).generate_state(1, np.uint32)[0]
    assert derived_seed(entropy) == int(expected)


def test_a_seeded_pipeline_is_built_without_numpys_generators() -> None:
    program = (
        "import sys, bushel; bushel.MapDataset.range(9).seed(3).shuffle().repeat().batch(2); "
        "print('numpy.random' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"False"]
