"""Packing and rebatching of tagged elements: a group gets the tags of its members."""

from typing import Any

from bushel.batch.rebatch import RebatchNode
from bushel.batch.regroup import Machine, Regroup
from bushel.core.block import first_leaf
from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.state import State
from bushel.core.state_fields import Fields
from bushel.core.stream import Stream
from bushel.provenance.tags import Tagged, TagsOfParts, TagsOfRows, tags_of_rows


@frozen
class TracedRegroup(Regroup):
    """Makes groups that have the tags of their members."""

    input: Node
    step: Regroup

    def machine(self) -> Machine:
        if isinstance(self.step, RebatchNode):
            return _TracedRebatcher(self.step)
        return _TracedMachine(self.step)

    def describe(self) -> str:
        return self.step.describe()


class _TracedMachine(Machine):
    """A machine that takes the values of tagged elements, one by one."""

    def __init__(self, node: Regroup) -> None:
        self._machine = node.machine()
        self.cuts_elements = self._machine.cuts_elements
        self._tags: list[Any] = []
        self._resumed: Any = None

    def begin(self, carried: Any) -> None:
        self._machine.begin(carried)
        self._tags, self._resumed = [], carried
        self._note()

    def _note(self) -> None:
        self.carried, self.complete = self._machine.carried, self._machine.complete

    def add(self, element: Any) -> bool:
        taken = self._machine.add(element.value)
        resumed, self._resumed = self._resumed, None
        self._note()
        # This group has a part of an element that is cut; unless none of it fitted.
        cut = self.cuts_elements and self.carried is not None and self.carried != resumed
        if taken or cut:
            self._tags.append(element.tag)
        return taken

    def end(self, made_before: int) -> list[Any]:
        made = self._machine.end(made_before)
        self._note()
        members = self._machine.members(len(self._tags))
        batches = self._makes_batches
        tagged = []
        for value, numbers in zip(made, members, strict=False):
            tags = [self._tags[number] for number in numbers]
            tagged.append(Tagged(value, TagsOfRows(tags) if batches else TagsOfParts(tags)))
        return tagged

    @property
    def _makes_batches(self) -> bool:
        return self._machine.makes_batches

    def finish(self, made: list[Any]) -> list[Any]:
        values = self._machine.finish([row.value for row in made])
        return [Tagged(value, row.tag) for value, row in zip(values, made, strict=True)]

    def state_of(self, parent: Any, carried: Any, used: int, made_before: int) -> dict[str, Any]:
        return self._machine.state_of(parent, carried, used, made_before)

    def fields(self, input: Stream) -> Fields:
        return self._machine.fields(input)

    def read(self, state: State) -> tuple[Any, Any, int, int]:
        return self._machine.read(state)


class _TracedRebatcher(_TracedMachine):
    """Batches that are cut: some of the tags of their rows go into the next one, too."""

    def __init__(self, node: RebatchNode) -> None:
        super().__init__(node)
        self._size = node.batch_size
        self._start = 0
        # The number of rows of each tagged element.
        self._counts: list[int] = []

    def begin(self, carried: Any) -> None:
        super().begin(carried)
        self._start, self._counts = carried or 0, []

    def add(self, element: Any) -> bool:
        taken = super().add(element)
        if len(self._tags) > len(self._counts):
            self._counts.append(len(first_leaf(element.value)))
        return taken

    def end(self, made_before: int) -> list[Any]:
        made = self._machine.end(made_before)
        self._note()
        rows: list[Any] = []
        for tag, count in zip(self._tags, self._counts, strict=True):
            rows += tags_of_rows(tag, count)
        mine = rows[self._start : self._start + self._size]
        return [Tagged(value, TagsOfRows(mine)) for value in made]
