"""Runs the tasks of `write` in worker processes, here or on a cluster."""

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
    """Does tasks in worker processes, here or on a cluster; without any if `workers` is 0.

    An exception of the function is raised here; tasks in progress are then abandoned.
    """
    if not workers or not numbers:
        yield from map(function, numbers)
        return
    options: MultiprocessingOptions | RayOptions
    if isinstance(workers, int):
        options = MultiprocessingOptions(min(workers, len(numbers)), 1)
    elif isinstance(workers.num_workers, int):
        here = min(workers.num_local_workers, len(numbers))
        there = max(1, min(workers.num_workers, len(numbers) - here))
        options = replace(workers, num_workers=there, num_local_workers=here)
    else:
        options = workers
    node = MapDataset.source(list(numbers)).map(function)._own_node()
    engine = Engine(Home(), options, None)
    most = min(engine.most_workers, len(numbers))
    fragment = engine.register(Fragment(node, (), ReadOptions(0, 0), True, False, most))
    waiting = iter(range(len(numbers)))
    under_way: list[Task] = []
    try:
        while True:
            for place in waiting:
                state = {"next_index": place}
                under_way.append(engine.submit(fragment, state, place + 1, place))
                if len(under_way) >= engine.workers:
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
