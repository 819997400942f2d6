"""Hosts of one job, as threads of one process."""

import json
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from bushel import IterDataset
from bushel.lanes.merge import merge_states
from bushel.sharding import ShardOptions
from tests.patience import PATIENCE_SECONDS

T = TypeVar("T")

# Makes the dataset of one host: what it is called with goes to `lanes`.
Build = Callable[..., IterDataset[Any]]


class Meeting:
    """Where hosts come together to find the least of their numbers."""

    def __init__(self, count: int) -> None:
        self._numbers = [0] * count
        self._barrier = threading.Barrier(count)
        # How often they did.
        self.rounds = 0

    def agree(self, host: int) -> Callable[[int], int]:
        """How one host finds it."""

        def least_of_all(number: int) -> int:
            self._numbers[host] = number
            self._barrier.wait(PATIENCE_SECONDS)
            least = min(self._numbers)
            if self._barrier.wait(PATIENCE_SECONDS) == 0:
                self.rounds += 1
            return least

        return least_of_all

    def give_up(self) -> None:
        """Ends the waiting of all hosts."""
        self._barrier.abort()


def on_hosts(
    build: Build,
    count: int,
    work: Callable[[Any], T],
    state: Any = None,
    meeting: Meeting | None = None,
) -> list[T]:
    """What each host makes of its iterator, in the order of the hosts."""
    meeting = meeting or Meeting(count)
    results: dict[int, T] = {}
    errors: list[BaseException] = []

    def run(host: int) -> None:
        try:
            ds = build(shard_options=ShardOptions(host, count), agree=meeting.agree(host))
            with iter(ds) as iterator:
                if state is not None:
                    iterator.set_state(state)
                results[host] = work(iterator)
        except BaseException as error:
            errors.append(error)
            meeting.give_up()

    if count == 1:
        run(0)
    else:
        threads = [threading.Thread(target=run, args=(host,)) for host in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in threads), "a host hangs"
    if errors:
        raise errors[0]  # What the others say is only that they waited in vain.
    return [results[host] for host in range(count)]


def take(count: int) -> Callable[[Any], list[Any]]:
    """Takes so many elements, or all that there are."""

    def taken(iterator: Any) -> list[Any]:
        return [element for element, _ in zip(iterator, range(count), strict=False)]

    return taken


def state_after(build: Build, hosts: int, steps: int, start: Any = None) -> Any:
    """The state of a job after so many steps, put together and sent through JSON."""

    def work(iterator: Any) -> Any:
        for _ in range(steps):
            next(iterator)
        return json.loads(json.dumps(iterator.get_state()))

    return merge_states(on_hosts(build, hosts, work, start))
