"""Random pipelines, with random numbers of workers: always the stream without them."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.events import events_of, run_events
from tests.nursery import one_nursery
from tests.thorough import THOROUGH, rare_examples
from tests.workers.random_pipelines import PROGRAMS, Program
from tests.workers.streams import assert_same_events, with_workers

__all__ = ["one_nursery"]  # What is made is looked at here, not who makes it.

# Fewer than elsewhere: each starts processes. Deterministic unless more is asked for.
tried = settings(
    derandomize=not THOROUGH,
    database=None,
    deadline=None,
    max_examples=rare_examples(8),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@given(program=PROGRAMS, count=st.integers(1, 3), cut=st.integers(0, 40))
@tried
def test_one_stream(program: Program, count: int, cut: int) -> None:
    inline = program.build(lambda ds: ds)
    ds = program.build(lambda ds: with_workers(ds, count))
    expected = run_events(inline)
    with iter(inline) as plain, iter(ds) as iterator:
        assert_same_events(events_of(iterator), expected)
        cut = min(cut, len(expected))
        for _ in range(cut):
            try:
                next(plain)
            except ValueError:
                continue
        iterator.set_state(plain.get_state())
        assert iterator.get_state() == plain.get_state()
        rest = events_of(iterator)
        assert [what[:3] for what, _ in rest] == [what[:3] for what, _ in expected[cut:]]
