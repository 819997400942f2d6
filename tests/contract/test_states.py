"""A state can be saved anywhere, is JSON, and leads to the same rest."""

from collections.abc import Sequence
from typing import Any

import pytest

from bushel.dataset import stream_node
from bushel.deliver.open import open_stream
from bushel.experimental import ZipIterDataset
from tests.contract.events import (
    events_of,
    freeze,
    freeze_state,
    is_error,
    run_events,
    states_of,
)
from tests.contract.pipelines import PIPELINES, Kit, by_turns, stream_of
from tests.thorough import THOROUGH, spread

# More elements than a batch, a window or a round of a mixture has.
_NEXT = 7
KITS = {"rows": Kit(), "columns": Kit("columns"), "broken": Kit("rows", (4, 5, 9))}
every_pipeline = pytest.mark.parametrize("name", PIPELINES)
# With these kits at a few places.
FEW = ("columns", "broken")


def _few(count: int, failed: Sequence[int]) -> Sequence[int]:
    after = {place + further for place in failed for further in (1, 2)}
    return sorted({*spread(range(count), 5), *after & set(range(count))})


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in PIPELINES for kind in ("rows", *by_turns(name, FEW))],
)
def test_restores_anywhere(name: str, kind: str) -> None:
    kit = KITS[kind]
    ds = stream_of(name, kit)
    if kit.broken and name == "ZipIterDataset":
        # A broken record puts the inputs out of step, as in Grain. Then they do not end
        # together, which is said once, and again when the state after it is restored.
        ds = ZipIterDataset(ds.parents, strict=False)
    everything = run_events(ds)
    states = states_of(ds)
    assert len(states) == len(everything) + 1
    # Everywhere in rows; where the others differ from them shows at a few places as well, and after
    # each failed record: in the state there, and in the one after the next element.
    failed = [place for place, event in enumerate(everything) if is_error(event)]
    places = range(len(states)) if kind not in FEW else _few(len(states), failed)
    with iter(ds) as used:
        for number, start in enumerate(places):
            state = states[start]
            # To the end from some of them, between which the others see to what comes next.
            # (From one place to another is not a matter of which they are.)
            is_far = number % 8 == 2 or THOROUGH
            most = None if is_far else _NEXT
            with iter(ds) as fresh:
                for iterator in (fresh, used) if is_far else (fresh,):
                    iterator.set_state(state)
                    assert iterator.get_state() == state
                    expected = everything[start:] if is_far else everything[start:][:_NEXT]
                    assert _plain(events_of(iterator, most)) == _plain(expected)
        # What is left of the iterator knows where it is, the end included.
        used.set_state(states[-1])
        assert events_of(used) == []
        assert freeze_state(used.get_state()) == freeze_state(states[-1])


def _plain(events: Any) -> Any:
    """Events without the notes: those of batches count from the restore on."""
    return [(what[:3], state) for what, state in events]


@every_pipeline
def test_iterators_do_not_know_of_each_other_nor_of_saving(name: str) -> None:
    ds = stream_of(name, Kit())
    expected = run_events(ds)
    with iter(ds) as quiet, iter(ds) as other, iter(ds) as closed:
        next(other, None)
        next(closed, None)
        state = closed.get_state()
        closed.close()
        closed.close()
        assert [freeze(element) for element in quiet] == [what for what, _ in expected]
        assert events_of(other) == expected[1:]
        # One that is closed still tells where it was.
        assert closed.get_state() == state


@every_pipeline
def test_chunks_know_their_states_when_the_stream_is_elsewhere(name: str) -> None:
    """Whoever holds a chunk asks it, and not the stream, which may have gone on or back."""
    stream = open_stream(stream_node(stream_of(name, KITS["broken"])))
    try:
        first, taken = stream.state(), []
        while (chunk := stream.pull(2 if stream.eager else 1)) is not None and len(taken) < 20:
            size = len(chunk.block) + (chunk.block.failure is not None)
            taken.append((chunk, [chunk.marks.at(used) for used in range(size + 1)]))
        stream.restore(first)
        for chunk, states in taken:
            assert [chunk.marks.at(used) for used in range(len(states))] == states
    finally:
        stream.close()
