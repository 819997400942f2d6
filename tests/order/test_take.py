"""A stream that ends after so many elements, whatever its input hands over with the last."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bushel.core.block import Block, Failure
from bushel.core.stream import Chunk, ComputedMarks
from bushel.order.take import LimitStream


class ThreeAndAFailure:
    """Has three elements and the failure of the fourth ready, as who makes several at once may."""

    eager = True
    base = SimpleNamespace()

    def pull(self, want: int) -> Chunk:
        marks = ComputedMarks(lambda used: {"next_index": used})
        return Chunk(Block([7, 8, 9], np.arange(3), Failure(ValueError("fourth"))), marks)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_a_failure_after_the_last_element_is_none_of_it(count: int) -> None:
    source: Any = ThreeAndAFailure()
    stream = LimitStream(source, count)
    chunk = stream.pull(10)
    assert chunk is not None
    assert chunk.block.rows() == [7, 8, 9][:count]
    assert (chunk.block.failure is not None) == (count > 3)
    assert chunk.marks.at(min(count, 3))["count_elements_read"] == min(count, 3)
    assert (stream.pull(10) is None) == (count <= 3)
