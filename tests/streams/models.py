"""What streams of rows mean, written as plainly as possible: lists in, lists out."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

Element = dict[str, Any]
Slices = dict[str, tuple[int, int]]


def as_sequence(value: Any) -> Any:
    array = np.asarray(value)
    return array if array.ndim else array[None]


def split(
    elements: Sequence[Element],
    lengths: dict[str, int],
    metas: Sequence[str] = (),
    splits_whole_rows: bool = True,
    bos_features: Sequence[str] = (),
    bos: int | None = None,
) -> list[Element]:
    """Rows of sequences that are laid end to end and cut."""
    made: list[Element] = []
    row: list[tuple[Element, Slices]] = []
    aside: list[tuple[Element, Slices]] = []

    def close() -> None:
        for pieces in ([row] if row else []) + [[piece] for piece in aside]:
            made.append(_row_of(pieces, lengths, metas, bos_features, bos))
        row.clear()
        aside.clear()

    def free(name: str) -> int:
        return lengths[name] - sum(stop - start for _, cut in row for start, stop in [cut[name]])

    for element in elements:
        rest: Slices = {name: (0, len(as_sequence(element[name]))) for name in lengths}
        sizes = {name: stop for name, (_, stop) in rest.items()}
        exact = any(sizes[name] == lengths[name] for name in lengths)
        if not splits_whole_rows and exact and all(sizes[n] <= lengths[n] for n in lengths):
            aside.append((element, rest))
            continue
        while any(stop - start > free(name) for name, (start, stop) in rest.items()):
            head = {
                name: (start, stop if name in metas else min(stop, start + free(name)))
                for name, (start, stop) in rest.items()
            }
            metas_fit = all(head[name][1] - head[name][0] <= free(name) for name in metas)
            progress = any(head[n][1] > head[n][0] for n in lengths if n not in metas)
            if metas_fit and progress:
                row.append((element, head))
                rest = {
                    name: rest[name] if name in metas else (head[name][1], rest[name][1])
                    for name in lengths
                }
            else:
                assert row or aside, "it fits into no row"
            close()
        row.append((element, rest))
    close()
    return made


def _row_of(
    pieces: Sequence[tuple[Element, Slices]],
    lengths: dict[str, int],
    metas: Sequence[str],
    bos_features: Sequence[str],
    bos: int | None,
) -> Element:
    row: Element = {}
    for name, length in lengths.items():
        like = as_sequence(pieces[0][0][name])
        cells = np.zeros((length, *like.shape[1:]), like.dtype)
        ids, places = np.zeros(length, np.int32), np.zeros(length, np.int32)
        at = 0
        for number, (element, slices) in enumerate(pieces, start=1):
            for place, value in enumerate(as_sequence(element[name])[slice(*slices[name])]):
                cells[at], ids[at], places[at] = value, number, place
                if not place and name in bos_features:
                    cells[at] = bos
                at += 1
        row[name] = cells
        if name not in metas:
            row[f"{name}_segment_ids"], row[f"{name}_positions"] = ids, places
    return row


def interleave(lists: Sequence[Sequence[Any]], cycle_length: int) -> list[Any]:
    """One element of each list in turn; the next list enters when one has ended."""
    waiting = [list(part) for part in lists]
    slots, waiting = waiting[:cycle_length], waiting[cycle_length:]
    ended = [False] * len(slots)
    made: list[Any] = []
    while waiting or not all(ended):
        for turn, slot in enumerate(slots):
            if ended[turn] and waiting:
                slots[turn] = slot = waiting.pop(0)
            # One that has none loses this turn.
            ended[turn] = not slot
            made += slot[:1]
            del slot[:1]
    return made


def sequences_in(row: Element, name: str) -> Iterator[tuple[int, Any]]:
    """The numbers of the sequences of a row, and their cells."""
    ids = row[f"{name}_segment_ids"]
    for number in sorted(set(ids.tolist()) - {0}):
        (cells,) = np.nonzero(ids == number)
        assert cells.tolist() == list(range(cells[0], cells[-1] + 1)), "it lies in one piece"
        assert row[f"{name}_positions"][cells].tolist() == list(range(len(cells)))
        yield number, row[name][cells]
