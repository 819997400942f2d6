"""The node and state of `pack` by first fit or best fit; `batch/packing.py` fills the rows."""

from collections.abc import Iterable, Sequence
from typing import Any

from bushel.batch.packing import Bins, Packing, order_of_rows
from bushel.batch.regroup import Machine, Regroup
from bushel.batch.sequences import Sequences, sequences_of
from bushel.core.frozen import frozen
from bushel.core.node import ONE_LANE, Node
from bushel.core.state import State
from bushel.core.state_fields import Fields, Inner, Whole
from bushel.core.stream import Stream


@frozen
class PackNode(Regroup):
    """Places sequences of several lengths side by side in rows of one length."""

    input: Node
    packing: Packing
    seed: int
    shuffles: bool
    group_by: str | None
    lane: tuple[int, int] = ONE_LANE

    def machine(self) -> Machine:
        return _Packer(self)

    def describe(self) -> str:
        packing = self.packing
        lengths = ", ".join(f"{feature.name}: {feature.length}" for feature in packing.features)
        fit = "best fit" if packing.best_fit else "first fit"
        order = f", seed={self.seed}" if self.shuffles else ""
        return f"pack({{{lengths}}}, {packing.bins} bins, {fit}{order})"


class _Packer(Machine):
    takes_ragged = True

    def __init__(self, node: PackNode) -> None:
        self._node = node
        self._bins: Bins = node.packing.begin()
        self._paths = [feature.path for feature in node.packing.features]
        # The elements seen last, and their sequences.
        self._offered: Sequence[Any] = ()
        self._sequences: Sequences | None = None
        # The bin of each row of the group that ended last.
        self._order: Sequence[int] = ()

    def begin(self, carried: Any) -> None:
        self._bins = self._node.packing.begin()

    def add(self, element: Any) -> bool:
        return self._bins.add(element)

    def add_many(self, elements: Sequence[Any], start: int) -> int:
        if elements is not self._offered:
            packing = self._node.packing
            self._offered = elements
            self._sequences = sequences_of(elements, start, self._paths, packing.loose)
        if self._sequences is None:
            return 0
        return self._bins.add_many(self._sequences, start)

    def end(self, made_before: int) -> list[Any]:
        node, rows = self._node, self._bins.rows()
        self._order = range(len(rows))
        if node.shuffles and rows:
            lane, lanes = node.lane
            order = order_of_rows(rows, node.seed + made_before * lanes + lane, node.group_by)
            self._order = [int(index) for index in order]
            rows = [rows[index] for index in self._order]
        return rows

    def members(self, count: int) -> Iterable[Sequence[int]]:
        in_bins: list[list[int]] = [[] for _ in self._order]
        for number, chosen in enumerate(self._bins.chosen):
            in_bins[chosen].append(number)
        return [in_bins[index] for index in self._order]

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        return {"parent": parent, "next_row": used, "counter": made_before + used}

    def fields(self, input: Stream) -> Fields:
        def too_many(state: State) -> str | None:
            used, made = state["next_row"], state["counter"]
            given = input.most_before(state["parent"])
            if used > made:
                return f"it is at row {used} of a group, after {made} rows in all"
            if given is not None and made - used > given:
                return f"'counter' is {made}, and {given} elements make no more rows than that"
            return None

        row = Whole(self._node.packing.bins)
        return Fields(too_many, parent=Inner(input), next_row=row, counter=Whole())

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        used = state["next_row"]
        return state["parent"], None, used, state["counter"] - used
