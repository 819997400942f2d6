"""The step that lays sequences end to end and cuts them into rows of one length."""

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.batch.pack import fields
from bushel.errors import BatchError, PlanError, StateError
from bushel.frozen import frozen
from bushel.node import Machine, Node, Regroup

# For each feature, which part of an element's sequence is meant.
Slices: TypeAlias = dict[str, tuple[int, int]]
_Piece: TypeAlias = tuple[dict[str, npt.NDArray[Any]], Slices]


@frozen
class SplitNode(Regroup):
    """Joins sequences, and splits them where a row is full."""

    input: Node
    lengths: dict[str, int]
    metas: frozenset[str]
    splits_whole_rows: bool
    bos_features: frozenset[str]
    bos_token: int | None

    def machine(self) -> Machine:
        return _Splitter(self)

    def describe(self) -> str:
        bos = f", bos={self.bos_token}" if self.bos_token is not None else ""
        return f"concat_then_split({self.lengths}{bos})"


def check_lengths(length_struct: Any) -> dict[str, int]:
    """Returns the lengths of the features of a row."""
    if not isinstance(length_struct, Mapping) or not length_struct:
        raise PlanError(
            "`length_struct` must be a dict from features to lengths, and is "
            f"{type(length_struct).__name__}: {length_struct!r:.100}."
        )
    for name, length in length_struct.items():
        if not isinstance(length, (int, np.integer)) or length < 0:
            raise PlanError(f"the length of feature {name!r} must be a whole number: {length!r}.")
    return {name: int(length) for name, length in length_struct.items()}


def check_bos(
    replaces: bool, features: Collection[str], token: int | None, metas: Collection[str]
) -> None:
    """Raises where what is said of begin-of-sequence tokens makes no sense."""
    if replaces and token is None:
        raise PlanError(
            "`bos_token_id` must be given with BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS."
        )
    if not replaces and (features or token is not None):
        raise PlanError(
            "`bos_features` and `bos_token_id` are for BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS; "
            f"got bos_features={sorted(features)} and bos_token_id={token!r} with DO_NOTHING."
        )
    both = sorted(set(features) & set(metas))
    if both:
        raise PlanError(f"{both} are in `bos_features` and in `meta_features`; they can be in one.")


class _Splitter(Machine):
    def __init__(self, node: SplitNode) -> None:
        self._node = node
        self._names = list(node.lengths)
        self._sequences = [name for name in self._names if name not in node.metas]
        self._resumed: Any = None
        self._row: list[_Piece] = []
        self._aside: list[_Piece] = []
        self._used: dict[str, int] = {}

    def begin(self, carried: Any) -> None:
        self._resumed, self.carried = carried, None
        self._row, self._aside = [], []
        self._used = dict.fromkeys(self._names, 0)

    def add(self, element: Any) -> bool:
        lengths, names = self._node.lengths, self._names
        arrays = self._arrays(element)
        slices = {name: (0, len(arrays[name])) for name in names}
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            slices.update(self._checked(resumed, slices))
        elif not self._node.splits_whole_rows and self._is_whole(slices):
            self._aside.append((arrays, slices))
            return True
        used = self._used
        fits, splits = True, False
        for name in names:
            start, stop = slices[name]
            free = lengths[name] - used[name]
            if stop - start > free:
                fits = False
                if name in self._node.metas:
                    splits = False
                    break
            if name not in self._node.metas and stop > start and free > 0:
                splits = True
        if fits:
            self._row.append((arrays, slices))
            for name in names:
                start, stop = slices[name]
                used[name] += stop - start
            return True  # The row stays open, though it may be full: what follows may be empty.
        if splits and self._metas_fit(slices):
            self.carried = self._split(arrays, slices)
            return False
        if not self._row and not self._aside:
            sizes = {name: slices[name][1] - slices[name][0] for name in names}
            raise BatchError(f"an element of lengths {sizes} fits into no row of {lengths}.")
        self.carried = None if resumed is None else self._shown(slices)
        return False

    def _metas_fit(self, slices: Slices) -> bool:
        return all(
            slices[name][1] - slices[name][0] <= self._node.lengths[name] - self._used[name]
            for name in self._names
            if name in self._node.metas
        )

    def _split(self, arrays: dict[str, npt.NDArray[Any]], slices: Slices) -> Any:
        """Fills the row with what there is room for, and tells what is left."""
        head, tail = dict(slices), dict(slices)
        for name in self._sequences:
            start, stop = slices[name]
            cut = min(stop, start + self._node.lengths[name] - self._used[name])
            head[name], tail[name] = (start, cut), (cut, stop)
        self._row.append((arrays, head))
        return self._shown(tail)

    def _shown(self, slices: Slices) -> dict[str, list[int]]:
        return {name: list(slices[name]) for name in self._sequences}

    def _checked(self, resumed: Slices, whole: Slices) -> Slices:
        for name, (start, stop) in resumed.items():
            if stop > whole[name][1]:
                raise StateError(
                    f"this state is within a sequence of other data: it has {start} to {stop} of "
                    f"feature {name!r}, whose length is {whole[name][1]}."
                )
        return resumed

    def _is_whole(self, slices: Slices) -> bool:
        """Whether an element is exactly a row by itself."""
        lengths = self._node.lengths
        sizes = {name: slices[name][1] for name in self._names}
        return all(sizes[name] <= lengths[name] for name in sizes) and any(
            sizes[name] == lengths[name] for name in sizes
        )

    def _arrays(self, element: Any) -> dict[str, npt.NDArray[Any]]:
        names = self._node.lengths
        if not isinstance(element, dict) or element.keys() != names.keys():
            got = sorted(element) if isinstance(element, dict) else type(element).__name__
            raise BatchError(
                f"an element must be a dict of exactly the features of `length_struct`, "
                f"{sorted(names)}, and is {got}. Leave the others out in a `map` before."
            )
        arrays = {}
        for name, value in element.items():
            array = value if type(value) is np.ndarray else np.asarray(value)
            arrays[name] = array if array.ndim else array[None]
        return arrays

    def end(self, made_before: int) -> list[Any]:
        rows = [self._built(self._row)] if self._row else []
        rows += [self._built([piece]) for piece in self._aside]
        return rows

    def _built(self, pieces: list[_Piece]) -> dict[str, npt.NDArray[Any]]:
        row: dict[str, npt.NDArray[Any]] = {}
        for name, length in self._node.lengths.items():
            like = pieces[0][0][name]
            data = np.zeros((length, *like.shape[1:]), like.dtype)
            row[name] = data
            has_bos = name in self._node.bos_features
            if name in self._node.metas:
                at = 0
                for arrays, _ in pieces:
                    array = arrays[name]
                    data[at : at + len(array)] = array
                    at += len(array)
                continue
            ids, places = np.zeros(length, np.int32), np.zeros(length, np.int32)
            row[f"{name}_segment_ids"], row[f"{name}_positions"] = ids, places
            counting = np.arange(length, dtype=np.int32)
            at = 0
            for number, (arrays, slices) in enumerate(pieces, 1):
                start, stop = slices[name]
                if start == stop:
                    continue
                end = at + stop - start
                data[at:end] = arrays[name][start:stop]
                ids[at:end] = number
                places[at:end] = counting[: stop - start]
                if has_bos:
                    data[at] = self._node.bos_token
                at = end
        return row

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        slices = carried or {name: [-1, -1] for name in self._sequences}
        return {
            "parent_state": parent,
            "remainder_slices": slices,
            "elements_from_buffer_after_checkpoint": used,
        }

    def read(self, state: Any) -> tuple[Any, Any, int, int]:
        parent, used = fields(state, "parent_state", "elements_from_buffer_after_checkpoint")
        slices = state.get("remainder_slices")
        if not isinstance(slices, dict) or set(slices) != set(self._sequences):
            raise StateError(
                f"'remainder_slices' in a state must be a dict of {self._sequences}, and is "
                f"{slices!r:.200}."
            )
        pairs = {name: tuple(slices[name]) if _is_pair(slices[name]) else () for name in slices}
        # Grain writes pairs of -1, which JSON makes lists of, for an element that is whole.
        if all(pair == (-1, -1) for pair in pairs.values()):
            return parent, None, used, 0
        for name, pair in pairs.items():
            if len(pair) != 2 or not 0 <= pair[0] <= pair[1]:
                raise StateError(
                    f"this state is damaged: of feature {name!r} it has {slices[name]!r:.100} left."
                )
        return parent, {name: list(pair) for name, pair in pairs.items()}, used, 0


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(type(number) is int for number in value)
    )
