"""Workers never show: the same elements, errors and states as without them."""

import pytest

from bushel import MapDataset
from tests.contract.events import events_of, run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.contract.test_failures import CASES, Case
from tests.contract.test_schedules_of_workers import SOME
from tests.thorough import THOROUGH
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import assert_same_events, with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

# Each operation, and a variant for each way to spread a pipeline. How any pipeline is cut, sent
# and put together again is tried without processes, on a cluster that is simulated
# (`tests/cluster/test_pool.py`); here it is real ones that do it.
_HERE = [name for name in PIPELINES if ":" not in name or name in SOME]
most_pipelines = pytest.mark.parametrize("name", PIPELINES if THOROUGH else _HERE)
# One for each way to spread a pipeline: an error comes back as it does of a function that fails.
some_operations = pytest.mark.parametrize(
    "name", [name for name in PIPELINES if ":" not in name] if THOROUGH else SOME
)


@most_pipelines
def test_the_same_with_workers_resumed_anywhere(name: str) -> None:
    inline = stream_of(name, Kit())
    expected = run_events(inline)
    half = len(expected) // 2
    # Two for each operation; a variant of it is content with one, which starts sooner.
    workers = 1 if ":" in name else 2
    with iter(inline) as plain, iter(with_workers(inline, workers)) as iterator:
        assert_same_events(events_of(iterator), expected)
        for _ in range(half):
            next(plain)
        state = plain.get_state()
        iterator.set_state(state)
        assert iterator.get_state() == state
        assert_same_events(events_of(iterator), expected[half:])
        # Where the workers ended is where it ends without them.
        plain.set_state(iterator.get_state())
        assert events_of(plain) == []


@some_operations
def test_the_same_when_records_are_broken(name: str) -> None:
    inline = stream_of(name, Kit(broken=(4, 5, 9)))
    assert_same_events(run_events(with_workers(inline, 1)), run_events(inline))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_same_when_a_function_fails(case: Case) -> None:
    ds = case.build(Kit())
    inline = ds.to_iter_dataset(Kit().read) if isinstance(ds, MapDataset) else ds
    assert_same_events(run_events(with_workers(inline, 2)), run_events(inline))
