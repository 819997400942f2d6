"""Cuts a pipeline: which steps run in worker processes, which here, and why.

    to_iter_dataset ─ map ─ filter │ batch │ map ─ map
    └────────── workers ─────────┘   here    └ workers ┘

A step with memory (a batch after a filter, a window, a mixture of streams, a user's own
iterator) has to see the elements one after the other, and runs once, in the user's process.
All other steps need only the position, or the element itself.

This reads no data and starts nothing: a cut is a value. `run/build.py` and
`workers/lowering.py` make streams of it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from bushel.core.frozen import frozen
from bushel.core.node import (
    Drop,
    Each,
    Expand,
    Fold,
    Guard,
    Node,
    Place,
    chain_of,
    leaves_out,
    walk,
)
from bushel.core.places import (
    CustomStreamNode,
    OptionsNode,
    PrefetchNode,
    SeedNode,
    ToStreamNode,
    WorkersNode,
    droppers,
)
from bushel.core.step import Step
from bushel.errors import PlanError

T = TypeVar("T")

# Where steps run: in worker processes, in a prefetching thread, or in the user's thread.
WORKERS, THREAD, HERE = "workers", "thread", "here"

_IN_ORDER = "how many elements came before is known only in order"
# Most inputs of a step that are printed.
_SHOWN = 4


@frozen
class Reason:
    """Why a step does not run with the steps before it; `str` makes the sentence."""

    step: Node
    says: str
    # The earlier step that is the cause, if there is one.
    after: Node | None = None

    def __str__(self) -> str:
        after = "" if self.after is None else f" after `{self.after.label}`"
        return f"`{self.step.label}`{after}: {self.says}"


@frozen
class Stretch:
    """Neighbouring steps that run in the same place."""

    # In the order in which elements pass through them.
    steps: tuple[Node, ...]
    where: str
    inputs: "tuple[Stretch, ...]" = ()
    # Why the steps do not run with the steps before them.
    why: Reason | None = None
    # The step that asks for worker processes and covers these steps.
    workers: WorkersNode | None = None
    # The assumption of the stretch; and the stretch that runs instead once it proves wrong.
    guess: Reason | None = None
    otherwise: "Stretch | None" = None

    @property
    def labels(self) -> list[str]:
        """The steps as in code, including those of a random-access dataset."""
        first, *rest = self.steps
        before = reversed(chain_of(first.inputs[0])) if isinstance(first, ToStreamNode) else ()
        return [label for step in (*before, first, *rest) if (label := step.label)]

    @property
    def length(self) -> int | None:
        """The number of elements that come out, if it can be computed.

        A function of a random-access dataset may still drop elements, by returning None.
        """
        chain = self.chain()
        lengths = [stretch.length for stretch in chain[0].inputs]
        for step in (step for stretch in chain for step in stretch.steps):
            lengths = [length_after(step, lengths)]
        return lengths[0]

    def chain(self) -> "list[Stretch]":
        """The stretches up to this one, from the first that has no or several inputs."""
        chain = [self]
        while len(chain[-1].inputs) == 1:
            chain += chain[-1].inputs
        return chain[::-1]

    def walk(self) -> "Iterator[Stretch]":
        """This stretch and all stretches before it, inputs first."""
        waiting: list[tuple[Stretch, bool]] = [(self, False)]
        while waiting:
            stretch, seen = waiting.pop()
            if seen:
                yield stretch
                continue
            waiting.append((stretch, True))
            waiting += [(before, False) for before in reversed(stretch.inputs)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The whole cut as text: a line for each stretch, after its inputs."""
        chain = self.chain()
        yield from lines_of_parts(chain[0].inputs, Stretch.lines)
        for stretch in chain:
            yield from stretch._own_lines()

    def _own_lines(self) -> Iterator[str]:
        length = self.length
        count = "" if length is None else f" [{length} elements]"
        yield f"{self.where}: {' -> '.join(self.labels)}{count}"
        if self.why is not None:
            yield f"  why: {self.why}"
        if self.guess is not None:
            yield f"  guess: {self.guess}"
        if self.otherwise is not None:
            yield "  otherwise:"
            yield from (f"    {line}" for line in self.otherwise.lines())


def lines_of_parts(parts: Sequence[T], lines_of: Callable[[T], Iterable[str]]) -> Iterator[str]:
    """Several streams as text; if there are many, the first of them."""
    for number, part in enumerate(parts[:_SHOWN]):
        yield f"  part {number}:"
        yield from (f"    {line}" for line in lines_of(part))
    if len(parts) > _SHOWN:
        yield f"  and {len(parts) - _SHOWN} more parts"


def length_after(step: Node, lengths: Sequence[int | None]) -> int | None:
    """How many elements a step makes, given the lengths of its inputs; None if unknown."""
    if isinstance(step, ToStreamNode):
        known = step.allow_nones or not any(droppers(step.input))
        return step.input.length() if known else None
    if isinstance(step, Step):
        return step.length_after(lengths)
    length = lengths[0] if len(lengths) == 1 else None
    if length is None or leaves_out(step):
        return None
    if isinstance(step, Fold):
        return step.groups_in(length) if step.one_per_group else None
    return length if isinstance(step, (Each, Guard, Place)) else None


def cut(node: Node) -> Stretch:
    """Decides where each step of a stream runs."""
    return _cut(node, HERE)


def _cut(node: Node, where: str) -> Stretch:
    """Cuts steps that no `mp_prefetch` covers, and then those before the next one."""
    steps: list[Node] = []
    inputs: tuple[Stretch, ...]
    while True:
        if isinstance(node, WorkersNode) and node.options.num_workers:
            inputs = (_Region(node).cut(),)
            break
        if isinstance(node, PrefetchNode) and steps:
            inputs = (_cut(node, THREAD),)
            break
        if isinstance(node, PrefetchNode):
            where = THREAD
        if not isinstance(node, (SeedNode, OptionsNode, WorkersNode)):
            steps.append(node)
        if isinstance(node, (ToStreamNode, CustomStreamNode)) or len(node.inputs) != 1:
            # A user's own stream opens its inputs itself.
            own = isinstance(node, (ToStreamNode, CustomStreamNode))
            inputs = () if own else tuple(_cut(part, where) for part in node.inputs)
            break
        (node,) = node.inputs
    return Stretch(tuple(reversed(steps)), where, inputs) if steps else inputs[0]


class _Region:
    """The steps that one `mp_prefetch` covers."""

    def __init__(self, workers: WorkersNode) -> None:
        self._workers = workers

    def cut(self) -> Stretch:
        if any(isinstance(step, WorkersNode) for step in walk(self._workers.input)):
            raise PlanError(
                "`mp_prefetch` cannot be nested: the part of the pipeline that it covers has "
                "another one. Keep the one nearest to the end."
            )
        return self._cut(self._workers.input)

    def _cut(self, node: Node) -> Stretch:
        steps = self._steps_of(node)
        root, rest = steps[0], steps[1:]
        if isinstance(root, ToStreamNode):
            return self._by_position(root, rest)
        own = isinstance(root, CustomStreamNode)
        inputs = () if own else tuple(self._cut(part) for part in root.inputs)
        here = Stretch((root,), HERE, inputs, _why_here(root), self._workers)
        return self._after(here, rest)

    def _steps_of(self, node: Node) -> list[Node]:
        """A node and its inputs, up to the first that is not element-wise, a fold or a guard."""
        steps: list[Node] = []
        while True:
            if isinstance(node, Place) and not isinstance(node, ToStreamNode):
                node = node.input  # `prefetch` as well: workers prefetch anyway.
                continue
            steps.append(node)
            if not isinstance(node, (Each, Drop, Expand, Fold, Guard)):
                return steps[::-1]
            node = node.input

    def _by_position(
        self, root: ToStreamNode, steps: Sequence[Node], may_guess: bool = True
    ) -> Stretch:
        """The most first steps that workers can run without the trainer, and then the rest."""
        fused = _Fused(root, steps)
        count = fused.probable if may_guess else fused.certain
        mine = (root, *steps[:count])
        guess = fused.guess if count > fused.certain else None
        otherwise = None
        if guess is not None:
            otherwise = self._by_position(root, steps[:count], may_guess=False)
        first = Stretch(mine, WORKERS, (), None, self._workers, guess, otherwise)
        why = fused.why if count == fused.probable else fused.unless
        return self._after(first, steps[count:], why)

    def _after(self, stretch: Stretch, steps: Sequence[Node], why: Reason | None = None) -> Stretch:
        """Steps after a cut: element-wise steps run in workers, other steps here."""
        index = 0
        while index < len(steps):
            run = _run_of_element_wise(steps[index:])
            if run:
                reason = why or Reason(run[0], "needs no more than each element by itself")
                stretch = Stretch(tuple(run), WORKERS, (stretch,), reason, self._workers)
            else:
                reason = why or _why_here(steps[index])
                stretch = Stretch((steps[index],), HERE, (stretch,), reason, self._workers)
            why = None
            index += max(1, len(run))
        return stretch


class _Fused:
    """How many of the first steps workers can run without the trainer: probably, and certainly.

    Batches and counts depend on the number of elements before. That is the position, if
    no element was dropped. A map of a random-access dataset may return None, which drops an
    element, and this is not known beforehand; so workers run these steps until it happens.

    Elements that fail are not counted either. The trainer sees a failure in an outcome, and
    workers go on with another count. A guard in the workers would hide a failure from the
    trainer, so a guard after a counting step does not run in the workers.
    """

    def __init__(self, root: ToStreamNode, steps: Sequence[Node]) -> None:
        # Why the first step after the probable ones is cut off.
        self.why: Reason | None = None
        # The assumption of the steps after the certain ones; and why they are cut off without it.
        self.guess: Reason | None = None
        self.unless: Reason | None = None
        dropping: Node | None = None
        if not root.allow_nones:
            left_out = (step for step in droppers(root.input) if isinstance(step, (Drop, Expand)))
            dropping = next(left_out, None)
        self.certain = len(steps)
        counted: Node | None = None
        folded: Node | None = None
        for index, step in enumerate(steps):
            self.why = _why_cut(step, dropping, counted, folded)
            if self.why is not None:
                self.probable = index
                self.certain = min(self.certain, index)
                return
            if leaves_out(step):
                dropping = step
            elif _counts(step):
                if not root.allow_nones and self.guess is None:
                    self.guess = Reason(step, "no function before it returns None")
                    self.unless = Reason(step, _IN_ORDER)
                    self.certain = index
                counted = step
                folded = step if isinstance(step, Fold) else folded
        self.probable = len(steps)


def _counts(step: Node) -> bool:
    """Whether a step depends on the number of elements before."""
    return isinstance(step, Fold) or (isinstance(step, Each) and step.uses_positions)


def _why_cut(
    step: Node, dropping: Node | None, counted: Node | None, folded: Node | None
) -> Reason | None:
    """Why workers that read positions cannot run a step without the trainer; None if they can.

    `dropping`, `counted` and `folded` are the last steps before it that drop elements, count
    them, and group them.
    """
    if counted is not None and isinstance(step, Guard):
        return Reason(step, "an element that fails is not counted, so it has to be seen", counted)
    if leaves_out(step):
        if folded is not None:
            return Reason(step, "which groups are left out is known only after them", folded)
        return None
    if _counts(step):
        if dropping is not None:
            return Reason(step, _IN_ORDER, dropping)
        if folded is not None:
            return Reason(step, "workers share the positions in groups of one size", folded)
    if _is_element_wise(step) or isinstance(step, Guard):
        return None
    if isinstance(step, Fold) and step.one_per_group:
        return None
    return _why_here(step)


def _is_element_wise(step: Node) -> bool:
    return isinstance(step, (Drop, Expand)) or (isinstance(step, Each) and not step.stays_here)


def _run_of_element_wise(steps: Sequence[Node]) -> list[Node]:
    """The first steps that only need each element, and perhaps its number."""
    run: list[Node] = []
    countable = True
    for step in steps:
        if not _is_element_wise(step) or (_counts(step) and not countable):
            break
        countable = countable and not isinstance(step, (Drop, Expand))
        run.append(step)
    return run


def _why_here(step: Node) -> Reason:
    """Why a step runs in the user's process."""
    if isinstance(step, CustomStreamNode):
        return Reason(step, "an iterator of your own is asked by one process")
    if isinstance(step, Guard):
        return Reason(step, "bad records are counted in the order in which they come")
    if isinstance(step, Each):
        return Reason(step, "its function belongs to the process that asks")
    if len(step.inputs) > 1:
        return Reason(step, "takes elements of several streams, one after the other")
    if not step.inputs:
        return Reason(step, "opens its streams one after the other")
    if isinstance(step, Fold) and step.one_per_group:
        return Reason(step, "its groups are of neighbours, which are known only in order")
    return Reason(step, "has a memory: it must see the elements one after the other")
