"""Whose turn it is in a mixture whose weights change: the fast ways say what the plain one says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bushel import WeightSchedule
from bushel.order import line_shares, mix_turns
from bushel.order.exact_shares import exact_shares, which_fall_due
from bushel.order.line_columns import LineColumns
from bushel.order.line_shares import chosen_on_lines
from bushel.order.mix_turns import ScheduledTurns
from bushel.order.proportions import Runs, joined, on_lines, table_of
from bushel.order.shares import (
    chosen,
    chosen_by_runs,
    chosen_each,
    chosen_evenly,
    chosen_one_by_one,
)
from bushel.order.weight_lines import Lines, to_proportions
from tests.property.profile import tried

ONE = 1 << 60
# Some are 0, some the same, some far apart.
WEIGHT = st.one_of(
    st.just(0.0), st.sampled_from([1.0, 2.0, 3.5]), st.floats(1e-15, 1e6), st.floats(0, 1e-300)
)


def weights_of(parts: int) -> st.SearchStrategy[list[float]]:
    return st.lists(WEIGHT, min_size=parts, max_size=parts).filter(any)


@st.composite
def schedules(draw: st.DrawFn) -> tuple[WeightSchedule, int]:
    parts = draw(st.sampled_from([1, 2, 5, 17, 40]))
    steps = sorted(draw(st.sets(st.integers(0, 10**6), min_size=1, max_size=4)))
    points = [(step, draw(weights_of(parts))) for step in steps]
    make = draw(st.sampled_from([WeightSchedule.linear, WeightSchedule.steps]))
    return make(points), parts


def lines_of(schedule: WeightSchedule) -> Lines:
    steps = np.array([step for step, _ in schedule.points])
    rows = np.array([weights for _, weights in schedule.points], dtype=np.float64)
    return Lines(steps, rows.T, schedule.is_linear)


@tried
@given(schedules(), st.integers(0, 10**6), st.integers(1, 700), st.sampled_from([1, 3, 1000]))
def test_proportions_are_those_of_each_step(
    made: tuple[WeightSchedule, int], start: int, count: int, stride: int
) -> None:
    schedule, parts = made
    steps = start + stride * np.arange(count)
    runs = table_of(schedule, None, parts).at(steps)
    assert runs.steps == count
    assert (runs.each() == to_proportions(lines_of(schedule).at(steps))).all()


@tried
@given(st.data())
def test_even_proportions_fall_due_as_each_element_says(data: st.DataObject) -> None:
    parts = data.draw(st.integers(1, 40))
    column = to_proportions(np.array([data.draw(weights_of(parts))]).T)
    size = data.draw(st.integers(1, 300))
    ahead = tuple(data.draw(st.integers(0, ONE - 1)) for _ in range(parts))
    table = np.broadcast_to(column, (parts, size))
    which, end = chosen_evenly(column[:, 0], size, ahead)
    expected, expected_end = chosen_each(table, ahead)
    assert which.tolist() == expected.tolist()
    assert end == expected_end


@tried
@given(st.data())
def test_runs_fall_due_as_each_element_says(data: st.DataObject) -> None:
    parts, count = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 60))
    size = data.draw(st.sampled_from([1, 3, 50]))
    columns = to_proportions(np.array([data.draw(weights_of(parts)) for _ in range(count)]).T)
    sizes = np.array([data.draw(st.integers(1, size)) for _ in range(count)])
    ahead = tuple(data.draw(st.integers(0, ONE - 1)) for _ in range(parts))
    each = Runs(columns, sizes).each()
    expected, expected_end = chosen_each(each, ahead)
    for which, end in (chosen_by_runs(columns, sizes, ahead), chosen_one_by_one(each, ahead)):
        assert which.tolist() == expected.tolist()
        assert end == expected_end


@tried
@given(st.data(), st.integers(0, 2**32 - 1), st.sampled_from(["far", "near", "alike", "few"]))
def test_weights_on_lines_fall_due_as_each_element_says(
    data: st.DataObject, seed: int, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    parts, count = data.draw(st.integers(16, 120)), data.draw(st.integers(65, 700))
    make = {
        "far": lambda: 10.0 ** rng.uniform(-6, 6, parts),
        "near": lambda: rng.lognormal(0.0, 1.5, parts),
        "alike": lambda: 2.0 ** rng.integers(-1, 2, parts),
        "few": lambda: rng.uniform(1, 2, parts) * (rng.random(parts) < 0.5) + (rng.random() < 0.5),
    }[kind]
    ends = [np.where(np.arange(parts) == 3, 1.0, make()).tolist() for _ in range(2)]
    ramp = WeightSchedule.linear([(0, ends[0]), (data.draw(st.integers(800, 10**6)), ends[1])])
    steps = data.draw(st.integers(0, 100)) + np.arange(count)
    ends_of_lines = lines_of(ramp).ends(steps)
    if ends_of_lines is None:
        return  # Some part comes or goes in between.
    lines = LineColumns(*ends_of_lines)
    table = to_proportions(lines_of(ramp).at(steps))
    assert (lines.table() == table).all()
    ahead = tuple(rng.integers(0, ONE, parts).tolist())
    expected, expected_end = chosen_each(table, ahead)
    for which, end in (chosen(on_lines(lines), ahead), chosen_on_lines(lines, ahead) or (None, ())):
        assert which is None or (which.tolist(), end) == (expected.tolist(), expected_end)
    stays = rng.random(parts) < 0.5
    assert (lines.without(stays.tolist()).table() == table * stays[:, None]).all()


def test_weights_that_all_change_are_on_lines() -> None:
    rng = np.random.default_rng(0)
    ends = [rng.lognormal(0.0, 1.5, 300).tolist() for _ in range(2)]
    ramp = WeightSchedule.linear([(0, ends[0]), (10**6, ends[1])])
    table = table_of(ramp, None, 300)
    runs = joined([table.at(np.arange(500)), table.at(np.arange(500, 2000))])
    # No table of all of them is made.
    assert runs.lines is not None and runs.steps == 2000 and not runs.columns.size
    which, end = chosen(runs, (0,) * 300)
    expected, expected_end = chosen_each(runs.each(), (0,) * 300)
    assert (which.tolist(), end) == (expected.tolist(), expected_end)
    # Where numbers are too large for that, the same comes of tables, some steps at a time.
    far = joined([runs, Runs(runs.each()[:, :1] * 10**12, np.array([1]))])
    assert far.lines is None and far.steps == 2001


@tried
@given(
    st.lists(st.tuples(st.integers(0, 10**14), st.integers(0, 10**17)), min_size=1, max_size=9),
    st.sampled_from([1, 10**4, 10**9]),
)
def test_shares_are_exact(pairs: list[tuple[int, int]], divisor: int) -> None:
    weights = np.array([weight // divisor for weight, _ in pairs])
    rests = weights + np.array([more // divisor for _, more in pairs])
    expected = [ONE * int(w) // max(int(r), 1) for w, r in zip(weights, rests, strict=True)]
    assert exact_shares(weights, rests).tolist() == expected


@pytest.mark.parametrize("bits", [20, 27, 38])
def test_shares_in_two_digits_are_exact(bits: int) -> None:
    # Of shares of 38 bits, some quotients in a million are rounded up to a whole number.
    rng = np.random.default_rng(bits)
    rows = rng.integers(1, 1 << (bits - 8), (40, 25_000)).astype(np.float64)
    after = rng.integers(1, 1 << 40, 25_000).astype(np.float64)
    rests = after + rows[::-1].cumsum(axis=0)[::-1]
    left, (room, *digits) = rests[0].copy(), [np.empty_like(rows) for _ in range(3)]
    high, low = line_shares._shares(rows.copy(), left, bits, 0, room, digits)
    assert (left == after).all()
    shares = (high << bits) + low.astype(np.int64)
    assert (shares == exact_shares(rows.astype(np.int64), rests.astype(np.int64))).all()


@pytest.mark.parametrize("bits", [20, 30])
def test_what_first_digits_do_not_tell_the_second_ones_do(bits: int) -> None:
    rng = np.random.default_rng(0)
    unit = 1 << bits
    for share in (1, unit // 2, unit, 3 * unit, ONE // 300, ONE // 2, ONE):
        shares = np.minimum(share + rng.integers(0, 2, 3000), ONE)
        high = (shares + unit // 2) >> bits
        low = (shares - (high << bits)).astype(np.float64)
        for before in (0, 1, ONE // 2, ONE - 1, int(shares[:2000].sum(dtype=object)) % ONE):
            gets, end = line_shares._which_fall_due(high.copy(), low, bits, before)
            expected, expected_end = which_fall_due(shares, before)
            assert (gets.tolist(), end) == (expected.tolist(), expected_end)


def test_what_is_taken_is_not_divided_again(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    divide = line_shares._shares

    def counted(weight: Any, *more: Any) -> Any:
        computed.append(weight.size)
        return divide(weight, *more)

    monkeypatch.setattr(line_shares, "_shares", counted)
    parts, steps = 500, 2000
    rng = np.random.default_rng(0)
    ramp = WeightSchedule.linear([(step, list(rng.uniform(1, 2, parts))) for step in (0, 9999)])
    runs = table_of(ramp, None, parts).at(np.arange(steps))
    which, end = chosen(runs, (0,) * parts)
    # Half of the elements are gone, on the average, before they come to a part.
    assert 0 < sum(computed) <= 0.6 * parts * steps
    expected, expected_end = chosen_by_runs(runs.each(), runs.sizes, (0,) * parts)
    assert which.tolist() == expected.tolist()
    assert end == expected_end


def test_few_elements_of_many_parts_need_no_pass_over_all_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passes: list[int] = []
    fall_due = line_shares._which_fall_due

    def counted(*arguments: Any) -> Any:
        passes.append(1)
        return fall_due(*arguments)

    monkeypatch.setattr(line_shares, "_which_fall_due", counted)
    rng = np.random.default_rng(0)
    ramp = WeightSchedule.linear([(step, list(rng.uniform(1, 2, 300))) for step in (0, 9999)])
    ahead = tuple(rng.integers(0, ONE, 300).tolist())
    for steps in (64, 65, 200, 300):
        runs = table_of(ramp, None, 300).at(np.arange(steps))
        assert runs.lines is not None
        which, end = chosen(runs, ahead)
        expected, expected_end = chosen_each(runs.each(), ahead)
        assert (which.tolist(), end) == (expected.tolist(), expected_end)
    assert not passes


@pytest.mark.parametrize("parts", [5, 100])
def test_later_states_compute_only_what_came_since(
    parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    ramp = WeightSchedule.linear([(step, list(rng.uniform(1, 2, parts))) for step in (0, 9999)])
    table = table_of(ramp, None, parts)
    turns = ScheduledTurns(table, parts, (0, 1))
    choices = turns.choose(0, 1000, turns.beginning(), [True] * parts)
    computed: list[int] = []

    def counted(runs: Runs, ahead: Any) -> Any:
        computed.append(runs.steps)
        return chosen(runs, ahead)

    monkeypatch.setattr(mix_turns, "chosen", counted)
    for used, more in ((100, 100), (300, 200), (300, 0), (999, 699), (1000, 0), (200, 200)):
        expected = chosen_each(table.at(np.arange(used)).each(), (0,) * parts)[1]
        assert choices.ahead(used) == expected
        assert sum(computed) == more
        computed.clear()


def test_a_part_without_weight_stays_without_where_all_others_change() -> None:
    rng = np.random.default_rng(0)
    ends = [[0.0, 1e-13, *rng.uniform(1, 2, 98)] for _ in range(2)]
    ramp = WeightSchedule.linear([(0, ends[0]), (500, ends[1])])
    steps = np.arange(100, 400)
    runs = table_of(ramp, None, 100).at(steps)
    assert len(runs.sizes) == len(steps)
    assert (runs.each() == to_proportions(lines_of(ramp).at(steps))).all()


def test_a_slow_schedule_computes_nothing_for_each_element() -> None:
    ends = [1.0 + i % 7 for i in range(100)], [1.0 + i % 3 for i in range(100)]
    ramp = WeightSchedule.linear([(0, ends[0]), (10**10, ends[1])])
    runs = table_of(ramp, None, 100).at(np.arange(10**6, 10**6 + 20_000))
    assert runs.steps == 20_000
    assert len(runs.sizes) <= 10


def test_a_function_that_says_the_same_is_one_column() -> None:
    weights = [1.0] * 50

    def same(step: int) -> list[float]:
        if step == 300:
            weights[0] = 2.0  # The same list, with something else in it.
        return weights

    runs = table_of(same, None, 50).at(np.arange(500))
    assert runs.sizes.tolist() == [300, 200]
    assert runs.columns[:2].tolist() == [[100, 200], [100, 100]]


@pytest.mark.parametrize("parts", [2, 30])
def test_parts_of_runs(parts: int) -> None:
    columns = np.array([[100, 100], [300, 100], *[[0, 0]] * (parts - 2)])
    runs = Runs(columns, np.array([8, 4]))
    which, end = chosen(runs, (0,) * parts)
    assert which.tolist() == [0, 1, 1, 1] * 2 + [0, 1] * 2
    for cut in range(13):
        first, middle = chosen(runs.part(0, cut), (0,) * parts)
        second, last = chosen(runs.part(cut, 12), middle)
        assert [*first, *second] == which.tolist()
        assert last == end
