"""Random access: every position of every epoch gives what Grain gives."""

import grain
from hypothesis import given
from hypothesis import strategies as st

import bushel
from tests.grain.oracle import Raised, assert_same, difference, examples, outcome
from tests.grain.programs import build, length, map_programs

# Epochs far away, also beyond 64 bits, where Grain counts in Python's integers.
_FAR = st.sampled_from([10**6, 2**32 + 1, 2**40 + 3, 2**63 - 1, 2**63 + 5, 2**70, -(2**40)])


def _positions(count: int) -> st.SearchStrategy[list[int]]:
    near = st.integers(-2 * count - 3, 4 * count + 3)
    return st.lists(st.one_of(near, near, near, _FAR), min_size=3, max_size=8)


@examples(150)
@given(st.data())
def test_elements_at_positions(data: st.DataObject) -> None:
    program = data.draw(map_programs(), label="program")
    theirs, ours = build(grain, program), build(bushel, program)
    assert len(ours) == len(theirs) == length(program)
    count = min(length(program), 12)
    positions = data.draw(_positions(count), label="positions")
    for position in [*positions, *range(count)]:
        expected = outcome(lambda p=position: theirs[p])
        actual = outcome(lambda p=position: ours[p])
        assert_same(expected, actual, f"position {position}")


@examples(50)
@given(st.data())
def test_many_positions_at_once(data: st.DataObject) -> None:
    """A block of positions gives what the positions give one by one."""
    program = data.draw(map_programs(), label="program")
    ours = build(bushel, program)
    positions = data.draw(_positions(min(len(ours), 12)), label="positions")
    one_by_one = [outcome(lambda p=position: ours[p]) for position in positions]
    together = outcome(lambda: ours.__getitems__(positions))
    failures = [result for result in one_by_one if isinstance(result, Raised)]
    assert difference(failures[0] if failures else one_by_one, together) is None
