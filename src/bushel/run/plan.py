"""The plan of a pipeline: described, dealt to lanes, cut for workers, and lowered.

    described   the steps, as the user wrote them
    dealt       the same, with the lanes of this host in the place of all lanes
    cut         which steps run in worker processes, which here, and why (`run/cut.py`)
    lowered     the streams that run (`run/build.py`)

The first three read no data and start nothing. All of them can be printed.
"""

from collections.abc import Callable, Iterator

from bushel.core.frozen import frozen
from bushel.core.node import Node
from bushel.core.places import CustomStreamNode, ToStreamNode
from bushel.core.stream import Stream
from bushel.lanes.deal import Agree, DealNode
from bushel.lanes.own import own_lanes
from bushel.run.cut import Stretch, cut, lines_of_parts
from bushel.run.step_times import StepTimes


@frozen
class Plan:
    """A pipeline as described, dealt and cut."""

    described: Node
    dealt: Node
    cut: Stretch

    def __str__(self) -> str:
        dealt = ["as described"] if self.dealt is self.described else lines_of(self.dealt)
        phases = {"described": lines_of(self.described), "dealt": dealt, "cut": self.cut.lines()}
        lines = (
            line
            for phase, lines in phases.items()
            for line in (f"{phase}:", *map("  {}".format, lines))
        )
        return "\n".join(lines)


@frozen
class Opened:
    """One of the streams that run: its step, the process that runs it, the stream's class."""

    step: Node
    where: str
    stream: str


@frozen
class Lowered:
    """The streams of a plan, ready to run."""

    stream: Stream
    # In the order of opening: each stream after its inputs.
    opened: tuple[Opened, ...]
    # Statistics of the steps, if they are collected.
    times: StepTimes | None = None

    def __str__(self) -> str:
        return "\n".join(f"{one.where}: {one.stream} of {one.step.label}" for one in self.opened)


def plan_of(
    node: Node,
    process: Callable[[], tuple[int, int]],
    agree_in_job: Callable[[float], Agree],
) -> Plan:
    """Makes the plan of a stream. (For the arguments see `own_lanes`.)"""
    dealt = node
    if any(isinstance(step, DealNode) for step in steps_of(node)):
        dealt = own_lanes(node, process, agree_in_job)
    return Plan(node, dealt, cut(dealt))


def steps_of(node: Node) -> Iterator[Node]:
    """The steps of a stream, up to a user's own stream, which opens its inputs itself."""
    waiting = [node]
    while waiting:
        step = waiting.pop()
        yield step
        if not isinstance(step, (CustomStreamNode, ToStreamNode)):
            waiting.extend(reversed(step.inputs))


def lines_of(node: Node) -> Iterator[str]:
    """The steps of a pipeline line by line, from the source on, parts of a join indented."""
    steps = [node]
    while len(node.inputs) == 1:
        (node,) = node.inputs
        steps.append(node)
    yield from lines_of_parts(node.inputs, lines_of)
    yield from (step.label for step in reversed(steps) if step.label)
