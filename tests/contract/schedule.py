"""A schedule that chance decides, where otherwise the clock does.

How large blocks are, whether threads read ahead, how many batches are made one by one: all of
it is learnt from measured times, and a quiet machine only ever learns the same. Here the
learning is replaced by drawing lots, so that every schedule comes up on any machine.
"""

import itertools
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from bushel.core.block_size import BlockSize
from bushel.run import background, inline, positional
from bushel.run.thread_choice import ThreadChoice

_SIZES = (1, 1, 2, 3, 5, 7, 64, 8192)
_MOST_ON_DEMAND = (1, 2, 2, 3, 5, 64)
_LOOK_AHEADS = ((1, 1), (2, 3), (3, 17), (8192, 1 << 15))
# How likely one goes from inline to threads, or back, after a block.
_UNREST = (0.0, 0.1, 0.5, 1.0)


@contextmanager
def schedule(seed: int) -> Iterator[None]:
    """Lets chance decide for all iterators that are made within; the same for the same seed."""
    numbers = itertools.count()

    def lots() -> random.Random:
        # Each has its own, whatever threads the others are on.
        return random.Random(f"{seed} {next(numbers)}")

    chance = lots()
    first, last = chance.choice(_LOOK_AHEADS)
    interval = sys.getswitchinterval()
    with ExitStack() as patches:
        for owner, name, value in (
            *_of_block_sizes(lots),
            *_of_thread_choices(lots),
            (positional, "_MOST_ON_DEMAND", chance.choice(_MOST_ON_DEMAND)),
            (inline, "_FIRST_LOOK_AHEAD", first),
            (inline, "_LAST_LOOK_AHEAD", last),
            (background, "_CHUNKS", chance.choice([1, 2, 3])),
        ):
            patches.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        patches.callback(sys.setswitchinterval, interval)
        sys.setswitchinterval(chance.choice([interval, 1e-5]))
        yield


Lots = Callable[[], random.Random]
Patch = tuple[Any, str, Any]


def _of_block_sizes(lots: Lots) -> list[Patch]:
    make = BlockSize.__init__

    def made(self: Any, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        self.lots = lots()
        draw(self)

    def draw(self: Any, *_: Any) -> None:
        self.size = min(self.lots.choice(_SIZES), self._most)

    names = ("learn", "limit_bytes", "limit_to")
    return [(BlockSize, "__init__", made), *((BlockSize, name, draw) for name in names)]


def _of_thread_choices(lots: Lots) -> list[Patch]:
    make = ThreadChoice.__init__

    def made(self: Any, *args: Any, **more: Any) -> None:
        make(self, *args, **more)
        self.lots = lots()
        self.unrest = self.lots.choice(_UNREST)

    def draw(self: Any, *_: Any) -> None:
        if self.may_use_threads and self.lots.random() < self.unrest:
            self.threaded = not self.threaded
            self.threads = min(self.lots.randint(1, 4), self._most_threads)

    def nothing(self: Any, *_: Any) -> None:
        """The threads that read would draw lots at a time that nobody knows."""

    return [
        (ThreadChoice, "__init__", made),
        (ThreadChoice, "learn_cycle", draw),
        (ThreadChoice, "learn_work", nothing),
    ]


# In a worker: what would end the schedule if it were forgotten.
_for_ever: list[Any] = []


def scheduled_worker(seed: int) -> Callable[[int, int], None]:
    """Makes a `worker_init_fn` that lets chance decide in workers, too."""
    return partial(_begin, seed)


def _begin(seed: int, index: int, count: int) -> None:
    _for_ever.append(schedule(seed + index))
    _for_ever[-1].__enter__()
