"""What a stream does, as a list of plain values that two runs can be compared by."""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from bushel.core.stream import Stream
from bushel.core.tree import leaves_with_paths
from bushel.dataset import stream_node
from bushel.deliver.open import open_stream

# An element, or the error in its place, and the state right after it.
Event = tuple[Any, str]


def freeze(element: Any) -> Any:
    """Turns an element into values that are equal only if types, dtypes and bits are."""
    leaves = [(path, _freeze_leaf(leaf)) for path, leaf in leaves_with_paths(element)]
    return "element", type(element).__name__, leaves


def _freeze_leaf(leaf: Any) -> Any:
    if isinstance(leaf, (np.ndarray, np.generic)):
        return type(leaf).__name__, leaf.dtype.str, leaf.shape, leaf.tolist()
    return type(leaf).__name__, leaf


def freeze_error(error: BaseException) -> Any:
    return "error", type(error).__name__, str(error), getattr(error, "__notes__", [])


def freeze_state(state: Any) -> str:
    """Turns a state into text, without the signatures, which differ with the source."""
    return json.dumps(_without_signatures(state))


def _without_signatures(state: Any) -> Any:
    if isinstance(state, list):
        return [_without_signatures(item) for item in state]
    if not isinstance(state, dict):
        return state
    return {name: _without_signatures(part) for name, part in state.items() if name != "bushel"}


def is_error(event: Event) -> bool:
    return bool(event[0][0] == "error")


def events_of(iterator: Iterator[Any], most: int | None = None) -> list[Event]:
    """Takes everything that is left in an iterator, or `most` of it, going on behind errors."""
    events: list[Event] = []
    while most is None or len(events) < most:
        try:
            what = freeze(next(iterator))
        except StopIteration:
            return events
        except Exception as error:
            what = freeze_error(error)
        events.append((what, freeze_state(iterator.get_state())))  # type: ignore[attr-defined]
        assert len(events) < 1000, "this stream does not end"
    return events


def states_of(ds: Any) -> list[Any]:
    """The states before everything and after each element, as they come back from disk."""
    states = []
    with iter(ds) as iterator:
        while True:
            saved = iterator.get_state()
            states.append(json.loads(json.dumps(saved)))
            assert states[-1] == saved, "JSON changes it"
            try:
                next(iterator)
            except StopIteration:
                return states
            except Exception:
                continue


def run_events(ds: Any, threaded: bool = False) -> list[Event]:
    """Iterates over a dataset from its beginning."""
    with iter(ds) as iterator:
        if threaded:
            iterator.start_prefetch()
        return events_of(iterator)


def pull_events(ds: Any, wants: Iterable[int]) -> list[Event]:
    """Pulls the stream of a dataset in chunks of the sizes that are wanted."""
    stream = open_stream(stream_node(ds))
    if not stream.eager:
        wants = [1] * 2000  # Only what is needed is asked of a user's own iterator.
    try:
        return list(_pull(stream, wants))
    finally:
        stream.close()


def _pull(stream: Stream, wants: Iterable[int]) -> Iterator[Event]:
    for want in wants:
        chunk = stream.pull(want)
        if chunk is None:
            return
        rows = chunk.block.rows()
        assert len(chunk.block.positions) == len(rows)
        for used, row in enumerate(rows, start=1):
            yield freeze(row), freeze_state(chunk.marks.at(used))
        if chunk.block.failure is not None:
            state = freeze_state(chunk.marks.at(len(rows) + 1))
            yield freeze_error(chunk.block.failure.error), state
    raise AssertionError("this stream does not end")


def wants_from(seed: int, largest: int) -> Iterator[int]:
    """Sizes of chunks without end."""
    rng = np.random.default_rng(seed)
    for _ in range(2000):
        yield int(rng.integers(1, largest + 1))
