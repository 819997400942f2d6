"""Tasks that are done side by side, each by whoever is free, and told of as they end.

This is the place for other machines: whoever can call a function with a number somewhere, and
tell what it returned, can take the place of `on_this_machine`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from bushel.core.options import MultiprocessingOptions, ReadOptions
from bushel.dataset import MapDataset
from bushel.workers.engine import Engine
from bushel.workers.fragment import Fragment
from bushel.workers.home import Home
from bushel.workers.task import Task

R = TypeVar("R")

# Calls a function with each number, perhaps again where somebody died meanwhile, and yields what
# it returned, whichever comes first.
DoTasks: TypeAlias = Callable[[Callable[[int], R], Sequence[int]], Iterator[R]]


def on_this_machine(
    function: Callable[[int], R], numbers: Sequence[int], workers: int
) -> Iterator[R]:
    """Does tasks in worker processes, or here where `workers` is 0.

    An exception of the function is raised here; what others are at then is given up.
    """
    workers = min(workers, len(numbers))
    if not workers:
        yield from map(function, numbers)
        return
    node = MapDataset.source(list(numbers)).map(function)._own_node()
    engine = Engine(Home(), MultiprocessingOptions(workers, 1), None)
    fragment = engine.register(Fragment(node, (), ReadOptions(0, 0), True, False, workers))
    waiting = iter(range(len(numbers)))
    under_way: list[Task] = []
    try:
        while True:
            for place in waiting:
                state = {"next_index": place}
                under_way.append(engine.submit(fragment, state, place + 1, place))
                if len(under_way) >= workers:
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
