"""Elements to pack, drawn at random."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

KINDS = ("i4", "i8", "u1", "f4", "f8", "?", "U3", "S2")
NUMBERS = ("i4", "i8", "u1", "f4", "f8")
SCALARS = (3, 2.5, True, "ab", b"q", np.int16(4), np.array(7))


@dataclass(frozen=True)
class Corpus:
    """Elements, the lengths of rows for their features, and further arguments."""

    elements: list[dict[str, Any]]
    lengths: dict[str, int]
    arguments: dict[str, Any] = field(default_factory=dict)

    def stream(self, lib: Any) -> Any:
        """The elements as a stream of Grain or of bushel."""
        made = lib.MapDataset.range(len(self.elements)).map(self.elements.__getitem__)
        return made.to_iter_dataset(lib.ReadOptions(num_threads=0, prefetch_buffer_size=0))


def _tokens(start: int, size: int, kind: str, tail: tuple[int, ...]) -> Any:
    numbers = start + np.arange(size * int(np.prod(tail, dtype=int)))
    return (numbers % 251).astype(kind).reshape(size, *tail)


@st.composite
def corpora(
    draw: st.DrawFn,
    names: tuple[str, ...] = ("a", "b", "x"),
    kinds: tuple[str, ...] = KINDS,
    longest: float = 1.0,
    least: int = 0,
    scalars: bool = True,
    most_features: int = 3,
) -> Corpus:
    """Sequences of `least` tokens up to so many times the length of a row."""
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=most_features, unique=True))
    lengths = {name: draw(st.integers(1, 9)) for name in chosen}
    kind = {name: draw(st.sampled_from(kinds)) for name in chosen}
    tail = {name: draw(st.sampled_from([(), (), (2,)])) for name in chosen}
    scalar = {
        name: draw(st.sampled_from(SCALARS)) for name in chosen if scalars and draw(st.booleans())
    }
    elements = []
    for number in range(draw(st.integers(0, 25))):
        element: dict[str, Any] = {}
        for name in chosen:
            size = draw(st.integers(least, max(least, int(longest * lengths[name]))))
            element[name] = scalar.get(name, _tokens(1 + 10 * number, size, kind[name], tail[name]))
        elements.append(element)
    return Corpus(elements, lengths)


@st.composite
def packings(draw: st.DrawFn, best_fit: bool = False) -> Corpus:
    """What can be packed, and how."""
    most = draw(st.sampled_from([None, None, 1, 2, 3]))
    # Grain's best fit puts any number of empty sequences into one row.
    least = 1 if best_fit and most is not None else 0
    corpus = draw(corpora(least=least))
    names, lengths = list(corpus.lengths), corpus.lengths
    for number, element in enumerate(corpus.elements):
        element.update(m=number % 3, q=f"s{number}")
    metas = draw(st.lists(st.sampled_from([*names, "m", "q"]), max_size=3, unique=True))
    numeric: list[str] = [
        name
        for name in names
        if all(np.asarray(e[name]).dtype.kind in "iuf" for e in corpus.elements)
    ] + [name for name in metas if name == "m"]
    arguments: dict[str, Any] = {
        "length_struct": lengths,
        "num_packing_bins": draw(st.integers(1, 6)),
        "seed": draw(st.integers(0, 99)),
        "shuffle_bins": draw(st.booleans()),
        "meta_features": metas,
        "max_sequences_per_bin": most,
    }
    if draw(st.booleans()):
        arguments["pack_alignment_struct"] = {n: draw(st.integers(1, 4)) for n in names}
    if draw(st.booleans()):
        arguments["padding_struct"] = {n: draw(st.sampled_from([None, 0, 7])) for n in names}
    grouped: bool = draw(st.booleans())
    if numeric and grouped:
        arguments["shuffle_bins_group_by_feature"] = draw(st.sampled_from(numeric))
    return Corpus(corpus.elements, lengths, arguments)
