"""`explain()`: makes an explanation of a pipeline, without reading or starting anything."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.naming import name_of, source_name
from bushel.core.node import (
    Choice,
    Drop,
    Each,
    Expand,
    Fold,
    Guard,
    Node,
    Order,
    Place,
    Source,
    Zip,
)
from bushel.core.places import CustomMapNode, CustomStreamNode, ToStreamNode, WorkersNode
from bushel.core.ray_options import RayOptions
from bushel.core.step import Step
from bushel.deliver.iterator import DatasetIterator
from bushel.lanes.deal import DealNode, GatherNode
from bushel.order.interleave import InterleaveNode
from bushel.run.cut import HERE, WORKERS
from bushel.watch.advice import AdvisedStep, Line, advice_on
from bushel.watch.element_counts import Counts
from bushel.watch.explain_notes import functions_of, notes_of
from bushel.watch.explanation import ExplainedPart, ExplainedStep, Explanation
from bushel.watch.placement import Placed, PlacedLine, placed_steps
from bushel.watch.plain_text import plural, printable

# The most nested joins that are followed; and the most different parts of one join that are shown.
_DEEPEST = 12
_MOST_PARTS = 8
_ORDINALS = {1: "1st", 2: "2nd", 3: "3rd"}
_KINDS = (Source, Drop, Expand, Each, Fold, Order, Choice, Zip, Guard, Place)


def explain(thing: Any) -> Explanation:
    """Explains a dataset, a loader, or an iterator of one: its steps and where they run.

    Reads nothing and starts nothing.

    >>> import bushel
    >>> print(bushel.explain(bushel.MapDataset.range(100).shuffle(seed=1).batch(8)))
    #  step              elements  runs                kind    note
    2  batch(8)                13  here, <= 16 threads  Fold
    1  shuffle(seed=1)        100  here, <= 16 threads  Order   each once an epoch
    0  range(0, 100, 1)       100  here, <= 16 threads  Source
    """
    method = getattr(type(thing), "explain", None)
    if method is None:
        raise TypeError(
            "`explain` takes a dataset, a DataLoader or an iterator of one, and got a "
            f"{type(thing).__name__}."
        )
    made: Explanation = method(thing)
    return made


def explain_node(node: Node, what: str, unwritten: int = 0) -> Explanation:
    """Explains a stream that ends with a node, except for `unwritten` steps at its end."""
    explaining = Explaining()
    steps = explaining.line(node, None)
    return explaining.explanation(what, steps[: len(steps) - unwritten])


def explain_made_by(what: str, make: Callable[[], Node]) -> Explanation:
    """Explains the result of a function, which may fail."""
    try:
        node = make()
    except Exception as error:
        return Explanation(what, (), problem=str(error) or type(error).__name__)
    return explain_node(node, what)


def explain_iterator(iterator: DatasetIterator[Any]) -> Explanation:
    """Explains an iterator: its stream, or the iterators from which it was made."""
    explaining = Explaining()
    return explaining.explanation("DatasetIterator", explaining.iterator(iterator))


@frozen
class _Surroundings:
    """The context of a line of steps."""

    places: PlacedLine
    # Where the steps run, if the line is read by position; and where steps run that have the place
    # "here".
    by_position: Placed | None
    here: Placed | None
    depth: int


class Explaining:
    """Examines steps one after the other, and numbers them."""

    def __init__(self) -> None:
        self.counts = Counts()
        self._number = 0
        self._problems: list[str] = []
        # The results, line by line; the inputs of a step come before its own line.
        self.lines: list[Line] = []

    def explanation(self, what: str, steps: tuple[ExplainedStep, ...]) -> Explanation:
        """All results."""
        problem = next(iter(self._problems), None)
        return Explanation(what, steps, tuple(advice_on(self.lines)), problem)

    def iterator(self, iterator: Any) -> tuple[ExplainedStep, ...]:
        """The steps of an iterator; a user's own iterator counts as a step."""
        node = getattr(iterator, "_node", None)
        if isinstance(node, Node):
            return self.line(node, None)
        parents = [self.iterator(parent) for parent in getattr(iterator, "_parents", ())]
        parts = (ExplainedPart(f"part {number}", one) for number, one in enumerate(parents))
        number, self._number = self._number, self._number + 1
        name = printable(type(iterator).__name__)
        return (ExplainedStep(number, name, "Step", place=HERE, parts=tuple(parts)),)

    def line(self, node: Node, beside: _Surroundings | None) -> tuple[ExplainedStep, ...]:
        """The steps of a line up to a node, from its beginning on."""
        if beside is None:
            beside = self._alone(node, None, 0)
        nodes = line_to(node)
        places = self._places(nodes, beside)
        parts = self._parts(nodes[0], places[0], beside)
        seen: list[AdvisedStep] = []
        for step, placed in zip(nodes, places, strict=True):
            if not _is_shown(step):
                continue
            explained = self._explained(step, placed, beside, parts if step is nodes[0] else ())
            seen.append(AdvisedStep(step, explained, placed))
        self.lines.append(seen)
        return tuple(one.explained for one in seen)

    def _alone(self, node: Node, here: Placed | None, depth: int) -> _Surroundings:
        """A step that opens streams of its own, which have plans of their own."""
        places = placed_steps(node, self.counts)
        if places.problem is not None:
            self._problems.append(places.problem)
        return _Surroundings(places, None, here, depth)

    def _places(self, nodes: Sequence[Node], beside: _Surroundings) -> list[Placed | None]:
        """Where each step runs; steps that are read by position run with the step to a stream."""
        places: list[Placed | None] = []
        by_position = beside.by_position
        for step in reversed(nodes):
            placed = by_position or beside.places.of(step)
            if isinstance(step, (ToStreamNode, DealNode)):
                by_position = placed
            places.append(placed)
        return places[::-1]

    def _explained(
        self,
        step: Node,
        placed: Placed | None,
        beside: _Surroundings,
        parts: tuple[ExplainedPart, ...],
    ) -> ExplainedStep:
        count = self.counts.of(step)
        place: dict[str, Any] = {}
        silent = isinstance(step, Place) and not isinstance(step, (ToStreamNode, DealNode))
        if placed is not None and not (silent and placed.place != "thread"):
            where = placed
            if placed.place == HERE and beside.here is not None:
                where = beside.here
            place = {
                "place": where.place,
                "workers": where.workers,
                "threads": placed.threads,
                "in_order": placed.in_order and beside.here is None,
            }
        number, self._number = self._number, self._number + 1
        return ExplainedStep(
            number,
            _name(step),
            _kind(step, count.streamed),
            None if count.endless else count.number,
            count.at_most,
            count.endless,
            **place,
            notes=tuple(map(printable, self._notes(step, placed, beside))),
            parts=parts,
        )

    def _notes(self, step: Node, placed: Placed | None, beside: _Surroundings) -> list[str]:
        found: list[str] = []
        # A user's object may answer anything; what it does not tell is left out.
        with suppress(Exception):
            if isinstance(step, WorkersNode):
                found += _note_of_workers(step, beside.places)
            if placed is not None:
                found += _notes_of_place(placed)
            found += notes_of(step)
        return found

    def _parts(
        self, root: Node, placed: Placed | None, beside: _Surroundings
    ) -> tuple[ExplainedPart, ...]:
        """The inputs of a line's first step, if there are several."""
        inputs, own_plan = _inputs(root)
        if not inputs:
            return ()
        if beside.depth == _DEEPEST:
            return (ExplainedPart(f"{plural(len(inputs), 'part')}, not shown: too deep", ()),)
        named = getattr(root, "names", None)
        names = [f"part {name!r}" for name in named] if named else _numbered(root, len(inputs))
        looks = [_look(part) for part in inputs]
        alike = Counter(looks)
        parts: list[ExplainedPart] = []
        for number, part in enumerate(inputs):
            same = alike.pop(looks[number], 0)
            if not same:
                continue
            if len(parts) == _MOST_PARTS:
                left = same + sum(alike.values())
                parts.append(ExplainedPart(f"and {plural(left, 'part')} of other kinds", ()))
                break
            if own_plan:
                below = self._alone(part, _outer(placed, beside), beside.depth + 1)
            else:
                below = _Surroundings(
                    beside.places.part(number),
                    placed if self._is_by_position(root) else None,
                    beside.here,
                    beside.depth + 1,
                )
            counts = [
                self.counts.of(one).number
                for one, look in zip(inputs, looks, strict=True)
                if look == looks[number]
            ]
            known = [count for count in counts if count is not None]
            parts.append(
                ExplainedPart(
                    names[number],
                    self.line(part, below),
                    same,
                    sum(known) if len(known) == len(counts) else None,
                )
            )
        return tuple(parts)

    def _is_by_position(self, node: Node) -> bool:
        return not self.counts.of(node).streamed


def line_to(node: Node) -> list[Node]:
    """The steps up to this one, from the first that has no or several inputs.

    The input of a user's own dataset is another line, even if it is only one.
    """
    nodes = [node]
    while len(node.inputs) == 1 and not isinstance(node, (CustomStreamNode, CustomMapNode)):
        (node,) = node.inputs
        nodes.append(node)
    return nodes[::-1]


def _outer(placed: Placed | None, beside: _Surroundings) -> Placed | None:
    return placed if placed is not None and placed.place != WORKERS else beside.here


def _inputs(root: Node) -> tuple[Sequence[Node], bool]:
    """The inputs of a line's first step, and whether each of them has its own plan."""
    if isinstance(root, InterleaveNode):
        return root.listed, True
    return root.inputs, isinstance(root, CustomStreamNode)


def _numbered(root: Node, count: int) -> list[str]:
    if count == 1 and isinstance(root, (CustomStreamNode, CustomMapNode)):
        return ["what it reads from"]
    return [f"part {number}" for number in range(count)]


def _look(part: Node, deepest: int = 2) -> tuple[Any, ...]:
    """The common form of parts that are shown as one; their numbers may differ."""
    look: list[Any] = []
    for step in reversed(line_to(part)):
        look.append((type(step), *_names_in(step)))
    inputs, _ = _inputs(step)
    # Nested joins may have as many paths as there are combinations.
    inner = inputs[:_MOST_PARTS] if deepest else ()
    return (*look, *(_look(one, deepest - 1) for one in inner), len(inputs))


def _names_in(step: Node) -> list[str]:
    """The names in a step: functions, and the class of a source."""
    source = getattr(step, "source", None)
    try:
        names = [name_of(function) for function in functions_of(step)]
        return names if source is None else [*names, source_name(source)]
    except Exception:  # A name may be a user's property.
        return [str(id(step))]


def _is_shown(step: Node) -> bool:
    if isinstance(step, WorkersNode):
        return bool(step.options.num_workers)  # A loader has the step, and perhaps no workers.
    # The user did not write a step without a name.
    return not isinstance(step, GatherNode) and bool(_name(step))


def _name(step: Node) -> str:
    try:
        return printable(step.label)
    except Exception:  # A name may be a user's property.
        return type(step).__name__


def _kind(step: Node, streamed: bool) -> str:
    if isinstance(step, CustomStreamNode) or (streamed and isinstance(step, Step)):
        return "Step" if step.inputs or isinstance(step, InterleaveNode) else "Source"
    return next((kind.__name__ for kind in _KINDS if isinstance(step, kind)), type(step).__name__)


def _note_of_workers(step: WorkersNode, places: PlacedLine) -> Iterator[str]:
    if places.problem is not None or not step.options.num_workers:
        return
    if isinstance(step.options, RayOptions):
        here = step.options.num_local_workers
        yield "its workers are on the cluster" + (f", and {here} of them here" if here else "")
    region: dict[int, Placed] = {}
    for line in places.walk():
        for placed in line.places.values():
            asked = placed.stretch.workers
            if asked is not None and asked.key is step.key:
                region.setdefault(id(placed.stretch), placed)
    if not any(placed.place == WORKERS for placed in region.values()):
        yield "no step runs in a worker"
    elif cuts := sum(placed.is_cut_off for placed in region.values()):
        yield plural(cuts, "cut")


def _notes_of_place(placed: Placed) -> Iterator[str]:
    why = placed.why
    if why is not None and (placed.place != WORKERS or why.after is not None):
        after = "" if why.after is None else f" after {why.after.label}"
        yield f"{'cut' if placed.is_cut_off else 'here'}{after}: {why.says}"
    if why is not None and placed.place == WORKERS:
        trips = placed.trips
        yield f"{_ORDINALS.get(trips, f'{trips}th')} trip to workers"
    if placed.guess is not None:
        yield f"as long as {placed.guess.says}"
