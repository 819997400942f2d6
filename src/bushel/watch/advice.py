"""The advice of `explain()`: rules about steps, with what to write instead.

A rule looks at the description of the pipeline and at where steps run, not at times or sizes. Its
advice is true of every pipeline to which it applies; if it cannot be sure, it gives none.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from bushel.batch.batch import BatchNode
from bushel.cache.cache import CacheNode
from bushel.core.frozen import frozen
from bushel.core.node import Drop, Each, Fold, Node, Place
from bushel.core.places import ToStreamNode, WorkersNode
from bushel.lanes.deal import DealNode
from bushel.order.repeat import RepeatNode, StreamRepeatNode
from bushel.order.sampled import SampledNode, SamplerOrder
from bushel.order.shuffle import ShuffleNode
from bushel.order.stream_mix import StreamMixNode
from bushel.order.stream_shuffle import StreamShuffleNode
from bushel.order.window_shuffle import StreamWindowShuffleNode, WindowShuffleNode
from bushel.run.cut import HERE, WORKERS
from bushel.sources.memory import ColumnsNode, RangeNode
from bushel.transforms.map import MapBatchesNode, MapNode, RandomMapNode
from bushel.watch.explain_notes import functions_of
from bushel.watch.explanation import ExplainedStep
from bushel.watch.placement import Placed


@frozen
class AdvisedStep:
    """A step of a line, and what is known about it."""

    node: Node
    explained: ExplainedStep
    placed: Placed | None

    @property
    def name(self) -> str:
        return f"`{self.explained.name}`"

    @property
    def place(self) -> str | None:
        return None if self.placed is None else self.placed.place


# Consecutive steps, from the first on.
Line: TypeAlias = Sequence[AdvisedStep]
Rule: TypeAlias = Callable[[Line], Iterator[str]]

_SHUFFLES = (ShuffleNode, WindowShuffleNode, StreamShuffleNode, StreamWindowShuffleNode)


def advice_on(lines: Sequence[Line]) -> Iterator[str]:
    """Advice in sentences, without repetitions."""
    said: dict[str, None] = {}
    for line in lines:
        for rule in _RULES:
            said.update(dict.fromkeys(rule(line)))
    said.update(dict.fromkeys(_endless(lines)))
    yield from said


def _before(line: Line, place: int, *kinds: type) -> Iterator[AdvisedStep]:
    """The steps before a step, from the nearest on, as long as they are of these kinds."""
    for seen in reversed(line[:place]):
        if not isinstance(seen.node, kinds):
            return
        yield seen


def _second_trip(line: Line) -> Iterator[str]:
    """Steps after a cut, for which elements are sent to workers a second time."""
    for seen in line:
        placed = seen.placed
        if placed is None or placed.place != WORKERS or placed.why is None or placed.trips < 2:
            continue
        cuts = [one for one in line if one.place == HERE and one.placed and one.placed.is_cut_off]
        if not cuts:
            continue  # From workers to workers: it counts the elements that others left.
        cut = cuts[0].name
        yield (
            f"{seen.name} comes after the cut at {cut} and makes another trip to the workers: all "
            f"elements are sent there and back. If it does not need what {cut} makes, put it "
            f"before {cut}; if it is cheap, after `mp_prefetch`, where it runs here."
        )


def _filter_before_batch(line: Line) -> Iterator[str]:
    """Batches that workers cannot make, because a filter comes before them."""
    for place, seen in enumerate(line):
        placed = seen.placed
        if not isinstance(seen.node, BatchNode) or placed is None or not placed.in_order:
            continue
        before = list(_before(line, place, Each, Drop))
        filters = [one for one in before if isinstance(one.node, Drop)]
        root = line[place - len(before) - 1] if place > len(before) else None
        if not filters or root is None or not isinstance(root.node, ToStreamNode):
            continue
        orders = {"shuffle": (ShuffleNode, WindowShuffleNode), "repeat": (RepeatNode,)}
        found = [
            f"`{name}`"
            for name, kinds in orders.items()
            if any(isinstance(one.node, kinds) for one in line[:place])
        ]
        before_these = f", before {' and '.join(found)}" if found else ""
        yield (
            f"{seen.name} runs here, as {filters[0].name} before it leaves elements out: which "
            "elements make a batch is known only in order, so workers send single elements. Write "
            f"the filter and `.compact()` into the `MapDataset`{before_these}: one pass finds out "
            "what is left, and then workers make whole batches."
        )


def _shuffle_after_batch(line: Line) -> Iterator[str]:
    """Batches that are shuffled, in which the same records stay together."""
    for place, seen in enumerate(line):
        if not isinstance(seen.node, _SHUFFLES):
            continue
        between = list(_before(line, place, Each, Place))
        first = place - len(between) - 1
        batch = line[first] if first >= 0 else None
        if batch is None or not isinstance(batch.node, BatchNode):
            continue
        if any(isinstance(one.node, _SHUFFLES) for one in line[:first]):
            continue
        yield (
            f"{seen.name} comes after {batch.name} and shuffles whole batches: the same records "
            f"are in one batch in every epoch. To mix records, put it before {batch.name}."
        )


def _columns_of_batches(line: Line) -> Iterator[str]:
    """Functions of columns after a batch, which get several batches in one call."""
    for place, seen in enumerate(line):
        if not isinstance(seen.node, MapBatchesNode):
            continue
        between = len(list(_before(line, place, Each, Place)))
        batch = line[place - between - 1] if place > between else None
        if batch is not None and isinstance(batch.node, BatchNode):
            yield (
                f"{seen.name} after {batch.name} gets several batches in one call, with an axis "
                "more than a batch has. For a function of one batch, write `map`; for one of the "
                f"columns of records, put `map_batches` before {batch.name}."
            )


def _shuffle_in_a_buffer(line: Line) -> Iterator[str]:
    """Shuffles with a buffer where all of the data could be shuffled."""
    for place, seen in enumerate(line):
        if not isinstance(seen.node, (StreamShuffleNode, StreamWindowShuffleNode)):
            continue
        before = list(_before(line, place, Each, Place))
        root = next((one for one in before if isinstance(one.node, (ToStreamNode, DealNode))), None)
        if root is None or isinstance(root.node, DealNode):
            continue
        if any(isinstance(one.node, _SHUFFLES) for one in line[:place]):
            continue
        yield (
            f"{seen.name} mixes neighbours only, and keeps them in memory. The data is read by "
            "position, so `shuffle` of the `MapDataset`, before `to_iter_dataset()`, mixes all of "
            "it and keeps nothing. (Where records are read fast only in their order, as from "
            "compressed chunks, leave it as it is.)"
        )


def _map_after_the_threads(line: Line) -> Iterator[str]:
    """Maps that threads cannot run, since they come after the step to a stream."""
    root: AdvisedStep | None = None
    for seen in line:
        if isinstance(seen.node, ToStreamNode):
            has_threads = seen.place == HERE and seen.explained.threads > 0
            root = seen if has_threads else None
        elif root is not None and type(seen.node) is MapNode:
            yield (
                f"{seen.name} comes after {root.name} and runs in the thread of your loop. Written "
                f"before {root.name}, up to {root.explained.threads} threads may prefetch it, if "
                "that is faster."
            )
            return  # What applies to the first applies to the next.
        elif not isinstance(seen.node, Place):
            root = None


def _idle_workers(line: Line) -> Iterator[str]:
    """Workers that have nothing to do, or less than sending their elements takes."""
    for place, seen in enumerate(line):
        if not isinstance(seen.node, WorkersNode) or not seen.node.options.num_workers:
            continue
        if "no step runs in a worker" in seen.explained.notes:
            yield (
                f"{seen.name} has nothing to do: every step before it runs here. Leave it out, or "
                "put it where elements are made: into what these steps read from."
            )
            continue
        theirs = line[:place]
        if any(functions_of(one.node) for one in theirs) or not theirs:
            continue
        light = (Each, Fold, Place, ShuffleNode, RepeatNode, RangeNode, ColumnsNode)
        if all(isinstance(one.node, light) for one in theirs):
            yield (
                f"{seen.name} has workers read what is in memory already, and no function to run: "
                "to send elements costs more than to make them. Leave it out."
            )


def _cached_chance(line: Line) -> Iterator[str]:
    """Random numbers that are cached."""
    for place, seen in enumerate(line):
        if not isinstance(seen.node, CacheNode):
            continue
        for random in (one for one in line[:place] if isinstance(one.node, RandomMapNode)):
            yield (
                f"{seen.name} remembers what {random.name} drew: each repetition has the same. "
                "For others each time, write `cache()`, then `repeat(...)`, then `random_map`."
            )


_RULES: tuple[Rule, ...] = (
    _second_trip,
    _filter_before_batch,
    _shuffle_after_batch,
    _columns_of_batches,
    _shuffle_in_a_buffer,
    _map_after_the_threads,
    _idle_workers,
    _cached_chance,
)

_REPEATS = (RepeatNode, StreamRepeatNode)


def _endless(lines: Sequence[Line]) -> Iterator[str]:
    """Data that never ends, though the user did not write `repeat`."""
    steps = [seen for line in lines for seen in line]
    if not lines or not lines[-1] or not lines[-1][-1].explained.endless:
        return
    if any(isinstance(seen.node, _REPEATS) for seen in steps):
        return
    for seen in steps:
        if isinstance(seen.node, (StreamMixNode, SamplerOrder, SampledNode)):
            yield (
                f"{seen.name} never ends, without a `repeat` that says so. Where it should, write "
                "`take(n)` after it, or give the sampler `num_epochs`."
            )
            return
