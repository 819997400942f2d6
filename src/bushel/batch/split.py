"""`pack` with "concat_then_split": lays sequences end to end, cuts rows, replaces BOS tokens."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bushel.batch.regroup import Machine, Regroup
from bushel.batch.row_cells import joined, padding, places
from bushel.batch.split_tables import SplitTable, table_of
from bushel.core.block import dicts_of
from bushel.core.frozen import frozen, plain
from bushel.core.node import Node
from bushel.core.state import State
from bushel.core.state_fields import FieldKind, Fields, Inner, Path, Whole
from bushel.core.stream import Stream
from bushel.errors import BatchError, PlanError, StateError

# For each feature, the start and end of a part of an element's sequence.
Slices: TypeAlias = dict[str, tuple[int, int]]
_Array: TypeAlias = npt.NDArray[Any]
# The content of a row, by feature.
_Pieces: TypeAlias = "dict[str, _Laid]"

_dimensions = attrgetter("ndim")
# The most rows that are written together: one that the user keeps keeps them all in memory.
_TOGETHER = 64


@frozen
class SplitNode(Regroup):
    """Joins sequences, and cuts them where a row is full."""

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
    """Raises if the options for begin-of-sequence tokens contradict each other."""
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


@plain
class _Laid:
    """Joined sequences of one feature."""

    # Arrays of one sequence or several joined ones; and the sizes of the sequences in each.
    arrays: list[_Array]
    sizes: list[Sequence[int] | _Array]

    def add(self, array: _Array) -> None:
        self.arrays.append(array)
        self.sizes.append((len(array),))


class _Splitter(Machine):
    cuts_elements = True
    takes_ragged = True

    def __init__(self, node: SplitNode) -> None:
        self._node = node
        self._names = list(node.lengths)
        self._sequences = [name for name in self._names if name not in node.metas]
        # The name of the feature, if there is only one and it may be cut.
        self._only = self._names[0] if self._sequences == self._names[:1] == self._names else None
        self._resumed: Any = None
        # The content of the open row by feature, and elements that are rows by themselves, each
        # with the number of pieces of the open row before it.
        self._row: _Pieces = {}
        self._aside: list[tuple[dict[str, _Array], int]] = []
        self._used: dict[str, int] = {}
        # The types of rows that are made together.
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._least_bos = np.min_scalar_type(node.bos_token or 0)
        # The elements seen last, and their sequences.
        self._offered: Sequence[Any] = ()
        self._table: SplitTable | None = None

    def begin(self, carried: Any) -> None:
        self._resumed, self.carried = carried, None
        self._row, self._aside = {name: _Laid([], []) for name in self._names}, []
        self._used = dict.fromkeys(self._names, 0)

    def add_many(self, elements: Sequence[Any], start: int) -> int:
        if elements is not self._offered:
            self._offered = elements
            self._table = table_of(
                self._node.lengths, self._node.splits_whole_rows, elements, start
            )
        if self._table is None or self._resumed is not None:
            return 0
        stop = self._table.stop(start, self._used, self._node.lengths)
        for name, laid in self._row.items():
            arrays, sizes = self._table.between(name, start, stop)
            laid.arrays += arrays
            laid.sizes.append(sizes)
            self._used[name] += sum(map(len, arrays))
        return stop - start

    def add_at(self, elements: Sequence[Any], index: int) -> bool:
        table, only = self._table, self._only
        if table is None or elements is not self._offered:
            return self.add(elements[index])
        if only is not None:
            laid = self._add_only(table.array_of(only, index), only)
            if laid is not None:
                return laid
        return self._add({name: table.array_of(name, index) for name in self._names})

    def add(self, element: Any) -> bool:
        return self._add(self._arrays(element))

    def _add(self, arrays: dict[str, _Array]) -> bool:
        if self._only is not None:
            laid = self._add_only(arrays[self._only], self._only)
            if laid is not None:
                return laid
        lengths, metas, used = self._node.lengths, self._node.metas, self._used
        slices = {name: (0, len(array)) for name, array in arrays.items()}
        resumed, self._resumed = self._resumed, None
        if resumed is not None:
            slices.update(self._checked(resumed, slices))
        elif not self._node.splits_whole_rows and self._is_whole(slices):
            self._aside.append((arrays, len(self._row[self._names[0]].sizes)))
            return True
        # The rest of the element, if it were cut here.
        tail = dict(slices)
        fits, splits = True, False
        for name, length in lengths.items():
            start, stop = slices[name]
            end = start + length - used[name]
            if stop > end:
                fits = False
                if name in metas:
                    splits = False
                    break
            if name not in metas:
                tail[name] = (min(stop, end), stop)
                splits = splits or start < tail[name][0]
        if fits:
            self._lay(arrays, slices)
            return True  # The row stays open, even if it is full: empty elements may follow.
        if splits:
            head = {name: (slices[name][0], tail[name][0]) for name in self._sequences}
            self._lay(arrays, {**slices, **head})
            self.carried = self._told(tail)
            return False
        if not self._row[self._names[0]].arrays and not self._aside:
            sizes = {name: slices[name][1] - slices[name][0] for name in lengths}
            raise BatchError(f"an element of lengths {sizes} fits into no row of {lengths}.")
        self.carried = None if resumed is None else self._told(slices)
        return False

    def _add_only(self, array: _Array, name: str) -> bool | None:
        """The same for elements of one sequence; None if the element is not that simple."""
        resumed, length = self._resumed, self._node.lengths[name]
        room = length - self._used[name]
        if array.ndim != 1 or not room:
            return None
        start, stop = 0, len(array)
        if resumed is not None:
            start, stop = resumed[name]
            if stop != len(array):
                return None
        elif not self._node.splits_whole_rows and stop == length:
            return None
        self._resumed = None
        end = min(stop, start + room)
        self._row[name].add(array[start:end])
        self._used[name] += end - start
        if end == stop:
            return True
        self.carried = {name: [end, stop]}
        return False

    def _lay(self, arrays: dict[str, _Array], slices: Slices) -> None:
        for name, (start, stop) in slices.items():
            self._row[name].add(arrays[name][start:stop])
            self._used[name] += stop - start

    def _told(self, slices: Slices) -> dict[str, list[int]]:
        return {name: list(slices[name]) for name in self._sequences}

    def _checked(self, resumed: Slices, whole: Slices) -> Slices:
        for name, (start, stop) in resumed.items():
            if stop != whole[name][1]:
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

    def _arrays(self, element: Any) -> dict[str, _Array]:
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
        rows: list[Any] = []
        if self._row[self._names[0]].arrays:
            rows.append(_WaitingRow(self._row) if self._is_even() else self._built([self._row])[0])
        for arrays, _ in self._aside:
            alone = {name: _Laid([array], [(len(array),)]) for name, array in arrays.items()}
            rows += self._built([alone])
        return rows

    def members(self, count: int) -> Iterable[Sequence[int]]:
        sizes = self._row[self._names[0]].sizes
        alone = [
            sum(map(len, sizes[:laid])) + number for number, (_, laid) in enumerate(self._aside)
        ]
        shared = [number for number in range(count) if number not in alone]
        return [*([shared] if shared else []), *([number] for number in alone)]

    def _is_even(self) -> bool:
        """Whether the row cannot fail, and has the types of the rows before."""
        for name, laid in self._row.items():
            arrays = laid.arrays
            dtype = self._dtypes.setdefault(name, arrays[0].dtype)
            if [array.dtype for array in arrays].count(dtype) < len(arrays):
                return False
            if set(map(_dimensions, arrays)) != {1}:
                return False
            if name in self._node.bos_features and not np.can_cast(self._least_bos, dtype):
                return False
        return True

    def finish(self, rows: list[Any]) -> list[Any]:
        waiting = [index for index, row in enumerate(rows) if type(row) is _WaitingRow]
        for first in range(0, len(waiting), _TOGETHER):
            some = waiting[first : first + _TOGETHER]
            built = self._built([rows[index].pieces for index in some])
            for index, row in zip(some, built, strict=True):
                rows[index] = row
        return rows

    def _built(self, rows: list[_Pieces]) -> list[dict[str, _Array]]:
        """Makes rows from their contents; several only if they are even."""
        columns: dict[str, Any] = {}
        for name, length in self._node.lengths.items():
            like = rows[0][name].arrays[0]
            pieces: list[_Array] = []
            sizes: list[Sequence[int] | _Array] = []
            # The number of sequences up to each row, and which of them are padding.
            counts, empty = [0], []
            for row in rows:
                laid = row[name]
                pieces += laid.arrays
                sizes += laid.sizes
                count = counts[-1] + sum(map(len, laid.sizes))
                rest = length - sum(map(len, laid.arrays))
                if rest:
                    pieces.append(padding(rest, like))
                    sizes.append((rest,))
                    empty.append(count)
                    count += 1
                counts.append(count)
            shape = (len(rows), length)
            data = _joined(pieces, len(rows) * length)
            columns[name] = data.reshape(*shape, *like.shape[1:])
            if name in self._node.metas:
                continue
            each = _concatenated(sizes)
            numbers = np.arange(1, counts[-1] + 1)
            numbers -= np.repeat(counts[:-1], np.diff(counts))
            numbers[empty] = 0
            if name in self._node.bos_features:
                begins = each.cumsum() - each
                data[begins[(each > 0) & (numbers > 0)]] = self._node.bos_token
            ids, positions = places(each, numbers)
            columns[f"{name}_segment_ids"] = ids.reshape(shape)
            columns[f"{name}_positions"] = positions.reshape(shape)
        return dicts_of(list(columns), list(columns.values()))

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        slices = carried or {name: [-1, -1] for name in self._sequences}
        return {
            "parent_state": parent,
            "remainder_slices": slices,
            "elements_from_buffer_after_checkpoint": used,
        }

    def fields(self, input: Stream) -> Fields:
        return Fields(
            parent_state=Inner(input),
            remainder_slices=_Remainders(self._sequences),
            elements_from_buffer_after_checkpoint=Whole(),
        )

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        slices = {name: list(pair) for name, pair in state["remainder_slices"].items()}
        used = state["elements_from_buffer_after_checkpoint"]
        return state["parent_state"], None if _is_untouched(slices) else slices, used, 0


class _Remainders(FieldKind):
    """The rest of an element that was cut: start and end for each feature."""

    def __init__(self, features: Sequence[str]) -> None:
        self._features = features

    def below(self, value: Any, name: str, path: Path, state: State) -> Iterable[Any]:
        if not isinstance(value, dict) or set(value) != set(self._features):
            raise StateError(
                f"{name!r} in a state must be a dict of {self._features}, and is {value!r:.200} "
                f"(at {path})."
            )
        whole = all(map(_is_pair, value.values())) and _is_untouched(value)
        for feature, pair in value.items():
            if not _is_pair(pair) or not (whole or 0 <= pair[0] <= pair[1]):
                raise StateError(
                    f"this state is damaged: of feature {feature!r} it has {pair!r:.100} left (at "
                    f"{path})."
                )
        return ()


def _is_untouched(slices: dict[str, Any]) -> bool:
    # Grain writes pairs of -1, which JSON turns into lists, for a whole element.
    return all(tuple(pair) == (-1, -1) for pair in slices.values())


@plain
class _WaitingRow:
    """A row that is made together with others."""

    pieces: _Pieces


def _concatenated(numbers: Sequence[Sequence[int] | _Array]) -> npt.NDArray[np.int64]:
    if any(type(some) is np.ndarray for some in numbers):
        return np.concatenate([np.asarray(some, np.int64) for some in numbers])
    return np.fromiter(chain.from_iterable(numbers), np.int64)


def _joined(arrays: list[_Array], length: int) -> _Array:
    like = arrays[0]
    try:
        return joined(arrays, length, like)
    except ValueError:
        # Shapes differ after the first axis: assign as far as numpy broadcasts one to the other.
        data = padding(length, like)
        end = 0
        for array in arrays:
            data[end : end + len(array)] = array
            end += len(array)
        return data


def _is_pair(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 2
        and all(type(number) is int for number in value)
    )
