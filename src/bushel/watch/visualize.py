"""Grain's visualisation setting: logs the pipeline of an iterator after its first element.

It logs `explain`, and the structure of the first element after each step. For that the first
element is made again, by steps that only depend on their elements; of steps with a memory, or with
a file of their own, only the result of the last is shown.
"""

import itertools
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from bushel.core.block import Block
from bushel.core.derived_class import become, become_again
from bushel.core.frozen import frozen
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
    with_inputs,
)
from bushel.core.options import ReadOptions
from bushel.core.places import PrefetchNode, ToStreamNode, WorkersNode
from bushel.core.tree import map_leaves
from bushel.deliver.iterator import StreamIterator
from bushel.lanes.deal import DealNode, GatherNode
from bushel.run.build import first_of
from bushel.watch.element_counts import Counts
from bushel.watch.explain import Explaining, line_to
from bushel.watch.explanation import ExplainedStep, Explanation
from bushel.watch.html import page
from bushel.watch.telling import tell

_log = logging.getLogger("bushel")
_numbers = itertools.count()


def show_after_first(iterator: StreamIterator[Any], folder: str) -> None:
    """Shows the pipeline of an iterator after its first element.

    Files are written to the folder; if it is "", the text is logged.
    """
    # A derived class until then, as a check at each element would cost time.
    become(iterator, _showing, _shown_in=folder)


def _showing(kind: type[StreamIterator[Any]]) -> type[StreamIterator[Any]]:
    """The class for iterators of this class that have not delivered an element yet."""
    take = cast(Callable[[Any], Any], kind.__next__)

    class Showing(kind):  # type: ignore[valid-type, misc]
        """An iterator that has not delivered an element yet."""

        def __next__(self) -> Any:
            element = take(self)
            folder = self.__dict__.pop("_shown_in", None)
            become_again(self, _showing)
            if folder is None:
                return element
            try:
                _show(self._node, element, folder)
            except Exception as error:
                # It is only a help, and no reason to end a training.
                _log.warning("the pipeline of an iterator cannot be shown: %r", error)
            return element

    return Showing


def _show(node: Node | None, element: object, folder: str) -> None:
    if node is None:
        return
    explanation = visualized(node, element)
    if not folder:
        tell(f"the pipeline of an iterator, after its first element:\n\n{explanation}")
        return
    os.makedirs(folder, exist_ok=True)
    name = f"pipeline-{os.uname().nodename}-{os.getpid()}-{next(_numbers)}"
    path = os.path.join(folder, name)
    with open(f"{path}.txt", "w", encoding="utf-8") as file:
        file.write(f"{explanation}\n")
    with open(f"{path}.html", "w", encoding="utf-8") as file:
        file.write(page("The pipeline of an iterator", explanation._repr_html_()))
    _log.info("the pipeline of an iterator is shown in %s.html", path)


def visualized(node: Node, element: object) -> Explanation:
    """Explains a stream, and the structure of its first elements; the last of these is known."""
    explaining = Explaining()
    steps = explaining.line(node, None)
    looks = _looks(node, explaining.counts)
    numbers = {one.explained.number: looks.get(id(one.node)) for one in explaining.lines[-1]}
    numbers[steps[-1].number] = look_of(element)
    told = (
        step if (look := numbers[step.number]) is None else _with_note(step, f"makes {look}")
        for step in steps
    )
    return explaining.explanation("DatasetIterator", tuple(told))


def _with_note(step: ExplainedStep, note: str) -> ExplainedStep:
    return replace(step, notes=(*step.notes, note))


@frozen
class _Looking(Each):
    """Passes elements on, and notes the structure of the first."""

    input: Node
    looks: dict[int, str]
    key: int

    def apply(self, block: Block) -> Block:
        if self.key not in self.looks:
            first = next((row for row in block.rows() if row is not None), None)
            if first is not None:
                self.looks[self.key] = look_of(first)
        return block

    def describe(self) -> str:
        return ""


_PURE = (Source, Order, Choice, Zip, Each, Drop, Expand, Fold, Guard, Place)


def _looks(node: Node, counts: Counts) -> dict[int, str]:
    """The structure of the first elements after the steps of a line, by the `id` of the step."""
    looks: dict[int, str] = {}
    made: Node | None = None
    streamed = False
    for step in line_to(node):
        if isinstance(step, (WorkersNode, PrefetchNode)):
            continue  # A single element is made here.
        begins = made is None and counts.of(step).streamed
        if begins or not isinstance(step, _PURE) or not _may_run_again(step):
            break
        again = step if made is None else with_inputs(step, [made])
        if isinstance(again, ToStreamNode):
            again, streamed = replace(again, read_options=ReadOptions(0, 0)), True
        made = _Looking(again, looks, id(step))
    if made is not None and streamed:
        first_of(made)
    return looks


def _may_run_again(step: Node) -> bool:
    """Whether a step has no effect except its elements."""
    if isinstance(step, Guard):
        return step.quarantine is None
    if isinstance(step, Each):
        return not step.stays_here
    return not isinstance(step, (DealNode, GatherNode))


def look_of(element: object) -> str:
    """The structure of an element: types, and the shapes of arrays.

    >>> import numpy as np
    >>> look_of({"image": np.zeros((28, 28), np.uint8), "label": 3})
    "{'image': 'uint8[28, 28]', 'label': 'int'}"
    """
    return str(map_leaves(_leaf, element))


def _leaf(leaf: Any) -> str:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return type(leaf).__name__
    return f"{dtype}{list(shape) if shape else ''}"
