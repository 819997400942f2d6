"""What iterators tell of themselves: waits, counts, times, and why a loop is slow."""

import gc
import json
import math
import os
import signal
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.core.options import DatasetOptions
from bushel.deliver.figures import Figures
from bushel.deliver.waits import Waits
from bushel.run import step_sheet, step_times
from bushel.run.call_sizes import by_count, unsized
from bushel.run.step_times import StepTimes, TimedTurns
from bushel.run.timing_budget import LooksBeside
from bushel.run.worker_figures import WorkerFigures
from bushel.watch.stats import Stats, StepStats, stats_of
from tests.watch.counted import counted
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import make_loader, with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

INLINE = ReadOptions(0, 0)


def odd(number: int) -> bool:
    return number % 2 == 1


def records_of(stats: Stats) -> dict[str, int]:
    assert stats.steps is not None
    return {step.name: step.records for step in stats.steps if step.place != "waiting"}


def test_parts_that_are_read_in_turn_are_not_counted_by_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = []

    def count() -> StepTimes:
        made.append(StepTimes())
        return made[-1]

    monkeypatch.setattr("bushel.run.build.StepTimes", count)
    parts = [MapDataset.range(10).to_iter_dataset(INLINE).filter(odd) for _ in range(3)]
    in_turn = bushel.experimental.InterleaveIterDataset(parts, cycle_length=2)
    assert set(records_of(counted(in_turn)).values()) == {15}
    assert len(made) == 1


@pytest.mark.parametrize("read", [INLINE, ReadOptions(2, 8)], ids=["inline", "threads"])
def test_records_are_counted(read: ReadOptions) -> None:
    dataset = MapDataset.range(103).shuffle(seed=1).map(abs).batch(4).repeat(3)
    stream = dataset.to_iter_dataset(read)
    with bushel.iterate(stream) as iterator:
        iterator.start_prefetch()
        assert sum(len(batch) for batch in iterator) == 309
        stats = iterator.stats()
    assert stats.elements == 78
    assert records_of(stats) == {
        "to_iter_dataset()": 78,
        "repeat(3)": 78,
        "batch(4)": 78,
        "map(abs)": 309,
        "shuffle(seed=1)": 309,
        "range(0, 103, 1)": 309,
    }


def test_records_of_streams_are_counted() -> None:
    stream = MapDataset.range(100).to_iter_dataset(INLINE).filter(odd).map(abs).batch(8)
    stats = counted(stream)
    assert stats.elements == 7
    assert records_of(stats) == {
        "batch(8)": 7,
        "map(abs)": 50,
        "filter(odd)": 50,
        "to_iter_dataset()": 100,
        "range(0, 100, 1)": 100,
    }


def test_batches_made_on_demand_are_counted() -> None:
    columns = {"x": np.arange(4000)}
    stats = counted(MapDataset.source(columns).shuffle(seed=0).batch(4).map(lambda batch: batch))
    named = records_of(stats)
    assert stats.elements == 1000
    assert {count for name, count in named.items() if name.startswith(("to_iter", "map", "b"))} == {
        1000
    }
    assert {count for name, count in named.items() if name.startswith("s")} == {4000}


def test_set_state_counts_what_was_read_again() -> None:
    stream = MapDataset.range(10).map(abs).to_iter_dataset(INLINE)
    with bushel.iterate(stream) as iterator:
        state = iterator.get_state()
        assert list(iterator) == list(range(10))
        iterator.set_state(state)
        assert [next(iterator) for _ in range(4)] == [0, 1, 2, 3]
        stats = iterator.stats()
    assert stats.elements == 14
    # What was made and not handed out was made all the same.
    assert 14 <= records_of(stats)["map(abs)"] <= 20


def test_a_prefetching_thread_is_counted() -> None:
    stream = MapDataset.range(100).map(abs).to_iter_dataset(INLINE)
    stream = bushel.experimental.ThreadPrefetchIterDataset(stream, prefetch_buffer_size=4)
    stats = counted(stream)
    assert stats.elements == 100
    assert records_of(stats)["map(abs)"] == 100


def test_parts_that_are_evaluated_together_are_left_out() -> None:
    parts = [MapDataset.range(10).map(abs) for _ in range(100)]
    stats = counted(MapDataset.mix(parts).batch(10))
    assert stats.elements == 100
    assert stats.steps is not None
    assert all("map(abs)" not in step.name or step.records_are_estimated for step in stats.steps)
    assert stats.parts_together == 100
    # Their time is that of the step that joins them, and not of the one that asks for it.
    mixture = next(step for step in stats.steps if step.name.startswith("mix(100 parts"))
    assert mixture.seconds > 0
    assert mixture.records == 1000
    assert "100 parts of mixtures are evaluated together" in str(stats)
    assert "100 parts of mixtures are evaluated together" in stats._repr_html_()


@pytest.mark.parametrize("count", [1, 2])
def test_what_workers_do_is_counted(count: int) -> None:
    dataset = MapDataset.range(200).shuffle(seed=1).map(abs).batch(4)
    stats = counted(with_workers(dataset, count))
    assert stats.elements == 50
    assert stats.steps is not None
    named = {step.name: (step.place, step.records) for step in stats.steps}
    assert named["map(abs)"] == ("workers", 200)
    assert named["batch(4)"] == ("workers", 50)
    assert named["range(0, 200, 1)"] == ("workers", 200)
    assert all(step.seconds > 0 for step in stats.steps if step.place == "workers")
    (workers,) = stats.workers
    assert workers.workers == count and workers.tasks > 0 and workers.deaths == 0
    assert workers.bytes > 0 and workers.busy_seconds > 0


def test_steps_before_and_after_a_cut_are_counted() -> None:
    stream = MapDataset.range(90).to_iter_dataset(INLINE).filter(odd).batch(5).map(np.sum)
    stats = counted(with_workers(stream, 2))
    assert stats.steps is not None
    named = {step.name: (step.place, step.records) for step in stats.steps}
    assert named["batch(5)"] == ("here", 9)
    assert named["map(sum)"] == ("workers", 9)
    assert named["filter(odd)"] == ("workers", 90)


def test_workers_that_die_are_counted_and_their_work_once() -> None:
    dataset = MapDataset.range(4000).map(lambda number: (os.getpid(), number))
    with bushel.iterate(with_workers(dataset, 2)) as iterator:
        pid, first = next(iterator)
        os.kill(pid, signal.SIGKILL)
        rest = [number for _, number in iterator]
        stats = iterator.stats()
    assert [first, *rest] == list(range(4000))
    (workers,) = stats.workers
    assert workers.deaths == 1
    # Nor does closing lose them, or the number of workers.
    (at_last,) = iterator.stats().workers
    assert (at_last.deaths, at_last.workers) == (1, 2)
    assert at_last.repeated_tasks == workers.repeated_tasks
    (name,) = [step.name for step in stats.steps or () if step.name.startswith("map")]
    assert records_of(stats)[name] == 4000
    assert "1 death" in str(stats)


def test_what_is_done_again_carefully_is_counted(tmp_path: Path) -> None:
    once = tmp_path / "once"

    def ends_the_first_worker(number: int) -> int:
        if number == 7 and not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    dataset = MapDataset.range(40).map(ends_the_first_worker)
    with bushel.iterate(with_workers(dataset, 1)) as iterator:
        assert list(iterator) == list(range(40))
        stats = iterator.stats()
    (name,) = [step.name for step in stats.steps or () if step.name.startswith("map")]
    assert records_of(stats)[name] == 40


def test_a_loader_has_statistics() -> None:
    loader = make_loader(bushel.transforms.Batch(10), workers=0)
    iterator = bushel.iterate(loader)
    assert len(list(iterator)) == 6
    stats = iterator.stats()
    assert stats.elements == 6 and stats.steps is not None
    assert iter(loader).stats().steps is None


def test_without_counting_there_are_the_waits() -> None:
    iterator = iter(MapDataset.range(10))
    assert "Nothing was asked for yet." in str(iterator.stats())
    assert len(list(iterator)) == 10
    stats = iterator.stats()
    assert stats.elements == 10 and stats.steps is None
    assert 0 < stats.wait_seconds <= stats.elapsed_seconds
    assert "bushel.iterate(dataset, stats=True)" in str(stats)
    assert type(bushel.iterate(MapDataset.range(10), stats=False)) is type(iterator)


def test_grains_switch_counts() -> None:
    options = DatasetOptions(
        execution_tracking_mode=bushel.experimental.ExecutionTrackingMode.STAGE_TIMING
    )
    stream = bushel.experimental.WithOptionsIterDataset(
        MapDataset.range(10).to_iter_dataset(INLINE), options
    )
    iterator = iter(stream)
    assert len(list(iterator)) == 10
    assert iterator.stats().steps is not None


def test_what_cannot_be_iterated_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a MapDataset, an IterDataset or a DataLoader"):
        bushel.iterate([1, 2, 3])


def test_an_iterator_that_counts_ends_like_any_other() -> None:
    dataset = MapDataset.range(100).map(abs)
    iterator = bushel.iterate(dataset.to_iter_dataset(INLINE).filter(odd))
    next(iterator)
    stream = weakref.ref(iterator._stream)
    gc.disable()
    try:
        del iterator
        assert stream() is None  # Nothing refers to itself.
    finally:
        gc.enable()


def test_waits() -> None:
    waits = Waits()
    waits.add(10.0, 12.0, 0)
    waits.add(13.0, 13.0005, 4)
    waits.add(14.0, 14.25, 8)
    assert (waits.refills, waits.ready) == (3, 1)
    assert waits.seconds == pytest.approx(2.2505)
    # The first wait is the start of everything.
    assert (waits.longest_seconds, waits.longest_at) == (0.25, 8)


def test_turns_are_timed_so_seldom_that_it_does_not_show(monkeypatch: Any) -> None:
    now = 0

    def clock() -> int:
        return now

    for module in (step_times, step_sheet):
        monkeypatch.setattr(module, "perf_counter_ns", clock)
    for nanoseconds in (10_000, 100_000, 10_000_000):
        monkeypatch.setattr(step_times, "looks_beside", LooksBeside(now))
        times = StepTimes()
        number = times.waiting("nothing")

        def work(nanoseconds: int = nanoseconds) -> None:
            nonlocal now
            now += nanoseconds

        step = times.clocked(number, work, unsized)
        turns = TimedTurns(times)
        for _ in range(2000):
            turns.alone(step)
        (total,) = times.totals()
        timed = total.timed_nanoseconds // nanoseconds
        cost = timed * (times.cost_of_a_turn + 750)
        # But for the first turns, which are timed more often: at first, half as often each time.
        first = math.log2(2000) * (times.cost_of_a_turn + 750)
        assert cost <= StepTimes.most_share * 2000 * nanoseconds + first
        assert timed >= 8


def test_slow_first_turns_stand_for_themselves_alone(monkeypatch: Any) -> None:
    now = 0
    monkeypatch.setattr(step_times, "looks_beside", LooksBeside(now))
    for module in (step_times, step_sheet):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: now)
    times = StepTimes()
    node = MapDataset.range(3)._own_node()

    def work(records: int, nanoseconds: int) -> None:
        nonlocal now
        now += nanoseconds

    step = times.clocked(times.number(node), work, by_count(0))
    turns = TimedTurns(times)
    sizes = [1, 1, 2, 4, 8, *[16] * 20]
    for count, size in enumerate(sizes):
        # What is imported and opened takes a thousand times as long as a record.
        turns.alone(step, size, 1_000 * size + 1_000_000 * (not count))
        done = times.totals()[0]
        # As the streams count; here nobody else does.
        done.records = sum(sizes[: count + 1])
        done.settle(1.0)
        assert done.nanoseconds == 1_000_000 + 1_000 * done.records
    assert done.timed_records < done.records


def test_turns_that_are_interrupted_do_not_end_the_timing() -> None:
    calls = 0

    def interrupted(number: int) -> int:
        nonlocal calls
        calls += 1
        if calls in (1, 3, 4, 9):
            raise KeyboardInterrupt
        return number

    iterator = bushel.iterate(MapDataset.range(50).map(interrupted).to_iter_dataset(INLINE))
    got: list[int] = []
    while len(got) < 50:
        try:
            got.append(next(iterator))
        except KeyboardInterrupt:
            continue
    assert got == list(range(50))
    stats = iterator.stats()
    assert stats.elements == 50
    assert all(step.seconds > 0 for step in stats.steps)


def test_own_times_add_up_to_the_whole(monkeypatch: Any) -> None:
    now = 0
    for module in (step_times, step_sheet):
        monkeypatch.setattr(module, "perf_counter_ns", lambda: now)
    times = StepTimes()
    inner_number, outer_number = times.waiting("inner"), times.waiting("outer")

    def inner() -> None:
        nonlocal now
        now += 30

    timed_inner = times.clocked(inner_number, inner, unsized)

    def outer() -> None:
        nonlocal now
        now += 5
        timed_inner()
        timed_inner()
        now += 7

    TimedTurns(times).alone(times.clocked(outer_number, outer, unsized))
    assert [total.timed_nanoseconds for total in times.totals()] == [60, 12]


def made(wait: float, steps: Any = (), workers: Any = (), threads: Any = ()) -> Stats:
    """Statistics of ten seconds."""
    return Stats(
        elements=1000,
        elapsed_seconds=10.0,
        wait_seconds=10.0 * wait,
        ready_share=0.5,
        longest_wait_seconds=0.1,
        longest_wait_at=7,
        steps=tuple(steps),
        threads=tuple(threads),
        workers=tuple(workers),
    )


def step(name: str, place: str, share: float) -> StepStats:
    return StepStats(name, place, 1, 1000, False, 10 * share, share, 0.1, 3)


def busy(share: float, count: int = 2, deaths: int = 0, sent: int = 0) -> WorkerFigures:
    return WorkerFigures(count, 100, 20 * share, 20 * (1 - share), sent, deaths, 3 * deaths, 0)


HEAVY_HERE = [step("map(decode)", "here", 0.9), step("source", "here", 0.1)]
HEAVY_THERE = [step("map(decode)", "workers", 0.9), step("batch(8)", "here", 0.1)]

CUT = [
    replace(step("map(after)", "workers", 0.1), number=4),
    replace(step("batch(8)", "here", 0.1), number=3),
    replace(step("filter(odd)", "workers", 0.8), number=2),
    replace(step("(waiting for workers)", "waiting", 0.0), records=8000),
]


@pytest.mark.parametrize(
    ("stats", "cores", "said"),
    [
        (made(0.005), 8, "the data is not what you wait for: 0.5 % of the time (below 1 %)"),
        (made(0.5, HEAVY_HERE), 8, "`map(decode)` is 90 % of the work (9 ms a record)"),
        (made(0.5, HEAVY_THERE, [busy(0.95)]), 8, "there are 8 cores: num_workers=5."),
        (made(0.5, HEAVY_THERE, [busy(0.95)]), 3, "num_workers=3 (to never wait it would take 5)"),
        (made(0.5, HEAVY_THERE, [busy(0.95)]), 2, "have all 2 cores. `map(decode)` takes 90 %"),
        (made(0.5, HEAVY_THERE, [busy(0.6)]), 8, "`per_worker_buffer_size`"),
        (made(0.5, HEAVY_HERE, [busy(0.1)]), 8, "says why it does not run in the workers"),
        (made(0.5, HEAVY_THERE, [busy(0.95, deaths=2)]), 8, "2 workers died and were replaced"),
        (made(0.5, [], [busy(0.1, deaths=1)]), 8, "1 worker died and was replaced, and 3 tasks"),
        (made(0.5, HEAVY_THERE, [busy(0.9, sent=30 * 10**9)]), 8, "3.0 GB a second"),
        (made(0.5, [step("a", "here", 0.3), step("b", "here", 0.3)]), 8, "no rule says why"),
        (made(0.5, HEAVY_HERE), 8, "threads are best: `ReadOptions(num_threads=16)`. Otherwise,"),
        (made(0.5, HEAVY_HERE, threads=["inline"]), 8, "Threads: inline. `mp_prefetch("),
        (
            replace(made(0.5), first_wait_seconds=4.96),
            8,
            "not what you wait for, once it runs: 0.79 % of the time (below 1 %). The wait for the "
            "first element, in which everything starts, took 5 s.",
        ),
        (made(0.5, CUT, [busy(0.3)]), 8, "`batch(8)` runs in this process, and gets its elements"),
        (
            made(0.5, HEAVY_THERE, [replace(busy(0.3, sent=5 * 10**8), ready_tasks=7)]),
            8,
            "7 tasks of theirs are ready: your loop waits for the transfer of elements, "
            "5 ms for 500 kB each",
        ),
        (made(0.5, HEAVY_THERE, [busy(0.3)]), 8, "no rule says why"),
        (
            made(0.5, HEAVY_THERE, [busy(0.1, sent=5 * 10**8)]),
            8,
            "busy 10 % of their time only (below 20 %): your loop waits for the transfer",
        ),
    ],
)
def test_why_slow(stats: Stats, cores: int, said: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("bushel.watch.why_slow.available_cores", lambda: cores)
    assert said in " ".join(stats.why_slow())


def test_too_little_to_tell() -> None:
    figures = Figures(2, 1.0, 0.5, 2, 0, 0.2, 1)
    assert stats_of(figures).why_slow() == ("too few elements so far to say why.",)


def test_faces_are_of_one_value() -> None:
    stats = made(0.5, [step("map(<script>)", "here", 1.0)], [busy(0.5)], ["inline"])
    plain = json.loads(json.dumps(stats.to_dict()))
    assert plain["wait_share"] == 0.5
    assert plain["steps"][0]["seconds_per_record"] == 0.01
    assert "Your loop waited 50 % of its time (5 s)" in str(stats)
    page = stats._repr_html_()
    assert "<script>" not in page and "map(&lt;script&gt;)" in page


def test_a_step_is_as_slow_as_it_is() -> None:
    # Two steps, of which one does a thousand times as much: the figures know which.
    def slow(number: int) -> int:
        return sum(range(20_000)) + number

    stats = counted(MapDataset.range(300).map(abs).map(slow).to_iter_dataset(INLINE))
    assert stats.steps is not None
    shares = {step.name.split("(")[1].split(" ")[0].rstrip(")"): step.share for step in stats.steps}
    assert max(shares, key=lambda name: shares[name]).endswith("slow")
