"""Tasks that are done side by side, each by whoever is free, and told of as they end."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.core.ray_options import RayOptions
from bushel.dataset import MapDataset
from bushel.workers.engine import Engine
from bushel.workers.fragment import Fragment
from bushel.workers.home import Home
from bushel.workers.task import Task

R = TypeVar("R")


def by_workers(
    function: Callable[[int], R], numbers: Sequence[int], workers: "int | RayOptions"
) -> Iterator[R]:
    """Does tasks in worker processes, here or on a cluster; without any where `workers` is 0.

    An exception of the function is raised here; what others are at then is given up.
    """
    wanted = workers.num_workers if isinstance(workers, RayOptions) else workers
    count = min(wanted, len(numbers))
    if not count:
        yield from map(function, numbers)
        return
    options: MultiprocessingOptions | RayOptions = MultiprocessingOptions(count, 1)
    if isinstance(workers, RayOptions):
        options = replace(workers, num_workers=count)
    node = MapDataset.source(list(numbers)).map(function)._own_node()
    engine = Engine(Home(), options, None)
    fragment = engine.register(Fragment(node, (), ReadOptions(0, 0), True, False, count))
    waiting = iter(range(len(numbers)))
    under_way: list[Task] = []
    try:
        while True:
            for place in waiting:
                state = {"next_index": place}
                under_way.append(engine.submit(fragment, state, place + 1, place))
                if len(under_way) >= count:
                    break
            if not under_way:
                return
            task = engine.wait_for_any(under_way)
            under_way.remove(task)
            yield _returned(engine, task)
    finally:
        engine.close()


def _returned(engine: Engine, task: Task) -> Any:
    block = engine.wait(task).chunk().block
    if block.failure is not None:
        raise block.failure.release()
    return block.rows()[0]
