"""Where positions come in an order: `find` is `locate` the other way round, of every order."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from bushel import IndexSampler, NoSharding, SequentialSampler, ShardOptions
from bushel.core.node import Choice, Node, Order, walk
from bushel.core.places import ToStreamNode
from bushel.lanes.deal import DealNode
from bushel.lanes.training_steps import StepOrder
from bushel.order.concatenate import ConcatenateNode
from bushel.order.mix import MixNode, SelectNode
from bushel.order.pattern import Pattern
from bushel.order.permutation import permute
from bushel.order.repeat import RepeatNode
from bushel.order.sampled import SamplerOrder
from bushel.order.shuffle import ShuffleNode
from bushel.order.slice import SliceNode
from bushel.order.unpermute import unpermute, unpermute_one
from bushel.order.window_shuffle import WindowShuffleNode
from bushel.order.windows import OverlapNode
from bushel.sources.memory import RangeNode
from tests.contract.pipelines import PIPELINES, Kit


def _range(length: int) -> RangeNode:
    return RangeNode(range(length))


def _sampled(sampler: Any, shard: ShardOptions) -> SamplerOrder:
    count = min(len(sampler), 50) // shard.shard_count
    return SamplerOrder(_range(11), sampler, shard.shard_index, shard.shard_count, count)


_SHARD = ShardOptions(1, 3)
_EVEN = ShardOptions(1, 3, drop_remainder=True)

ORDERS: dict[str, Node] = {
    "shuffle": ShuffleNode(_range(29), 3),
    "shuffle of one": ShuffleNode(_range(1), 3),
    "shuffle of 4**k + 1": ShuffleNode(_range(65), 3),
    "window shuffle": WindowShuffleNode(_range(26), 10, 3),
    "slice": SliceNode(_range(30), 3, 25, 2),
    "slice backwards": SliceNode(_range(20), 15, 2, -3),
    "slice of an endless one": SliceNode(RepeatNode(_range(7), None), 0, 40, 1),
    "repeat": RepeatNode(_range(7), 3),
    "repeat, the same": RepeatNode(_range(7), 3, reseed_each_epoch=False),
    "repeat for ever, the same": RepeatNode(_range(7), None, reseed_each_epoch=False),
    "windows": OverlapNode(_range(15), 4, 3, True),
    "windows, close": OverlapNode(_range(15), 5, 2, False),
    "windows, apart": OverlapNode(_range(17), 3, 5, False),
    "windows, larger than all": OverlapNode(_range(3), 5, 2, False),
    "lanes": StepOrder(_range(40), lanes=4, first=2, owned=2, rows=3),
    "concatenate": ConcatenateNode((_range(2), _range(0), _range(3))),
    "mix": MixNode((_range(12), _range(30), _range(7)), (3, 5, 2)),
    "mix of one": MixNode((_range(12),), (3,)),
    "sampler": _sampled(IndexSampler(11, shuffle=True, seed=4), NoSharding()),
    "sampler, in order": _sampled(IndexSampler(11, num_epochs=2), NoSharding()),
    "sampler of a shard": _sampled(IndexSampler(11, _SHARD, True, seed=2), _SHARD),
    "sampler of an even shard": _sampled(IndexSampler(11, _EVEN, True, 3, 2), _EVEN),
    "sequential": _sampled(SequentialSampler(11), NoSharding()),
    "sequential, a shard": _sampled(SequentialSampler(11, _SHARD), _SHARD),
}


def _by_position(node: Node) -> Iterator[Node]:
    """The orders of the random-access datasets that a pipeline reads."""
    for step in walk(node):
        if isinstance(step, (ToStreamNode, DealNode)):
            yield from (one for one in walk(step.input) if isinstance(one, (Order, Choice)))


ORDERS |= {
    f"{name}: {number}": node
    for name, build in PIPELINES.items()
    for number, node in enumerate(_by_position(build(Kit())._stream_node()))
}


def _maps(node: Node, stop: int) -> Iterator[tuple[Any, Any, Any]]:
    """For each input: what is located where, how positions are found, how far that reaches."""
    here = np.arange(stop)
    if isinstance(node, Order):
        yield dict(enumerate(node.locate(here).tolist())), node.find, node.reach(stop)
        return
    assert isinstance(node, Choice)
    which, where = node.locate(here)
    for part in range(len(node.inputs)):
        mine = np.flatnonzero(which == part)
        located = dict(zip(mine.tolist(), where.take(mine).tolist(), strict=True))

        def find(positions: Any, stop: int, part: int = part) -> Any:
            return node.find(part, positions, stop)

        yield located, find, node.reach(part, stop)


@pytest.mark.parametrize("name", ORDERS)
def test_what_is_found_is_what_is_located(name: str) -> None:
    node = ORDERS[name]
    length = min(node.length(), 40)
    # A selection map and a sampler have no place beyond their ends; nor has what is endless.
    ends = isinstance(node, (SelectNode, SamplerOrder)) or node.inputs[0].length() > 10**6
    for stop in (1, length, length if ends else 2 * length + 5):
        for located, find, reach in _maps(node, stop):
            assert max(located.values(), default=-1) < reach
            wanted = np.arange(max(located.values(), default=0) + 5)
            found, which = find(wanted, stop)
            assert len(found) == len(located)
            assert dict(zip(found.tolist(), wanted.take(which).tolist(), strict=True)) == located


def test_an_order_of_somebody_elses_is_not_known() -> None:
    class Backwards(Order):
        input = _range(3)

        def locate(self, positions: Any) -> Any:
            return 2 - positions

        def describe(self) -> str:
            return "backwards"

    assert Backwards().find(np.array([1]), 3) is None


def test_a_sampler_of_other_shards_is_not_known() -> None:
    order = SamplerOrder(_range(11), IndexSampler(11, _SHARD, seed=1), 0, 1, 11)
    assert order.find(np.array([1]), 11) is None


_SIZES = [1, 2, 3, 4, 5, 4**7, 4**7 + 1, 4**8, 4**8 + 1, 4**12 + 1, 2**32, 10**9, 4**30 + 1, 2**62]


@pytest.mark.parametrize("size", _SIZES)
@pytest.mark.parametrize("count", [1, 40])
def test_a_permutation_runs_backwards(size: int, count: int) -> None:
    dice = random.Random(size)
    places = np.array([0, size - 1, *(dice.randrange(size) for _ in range(count))])
    seed, seeds = dice.randrange(2**32), np.array([dice.randrange(2**32) for _ in places])
    for some in (seed, seeds):
        images = permute(places, size - 1, some)
        assert unpermute(images, size - 1, some).tolist() == places.tolist()
    image = int(permute(places[-1:], size - 1, seed)[0])
    assert unpermute_one(image, size - 1, seed) == places[-1]


@pytest.mark.parametrize("size", [1, 7, 1000, 4**6 + 1, 5000])
def test_all_of_a_permutation_backwards(size: int) -> None:
    images = permute(np.arange(size), size - 1, 5)
    assert unpermute(images, size - 1, 5).tolist() == list(range(size))
    assert unpermute(np.arange(size), size - 1, 5).tolist() == images.argsort().tolist()


def test_a_pattern_far_away() -> None:
    pattern = Pattern([100, 250, 7])
    for far in (10**6, 2**61):
        places = np.arange(far, far + 50)
        which, where = pattern.locate(places)
        for part in range(3):
            mine = np.flatnonzero(which == part)
            assert pattern.find(part, where.take(mine)).tolist() == places.take(mine).tolist()
