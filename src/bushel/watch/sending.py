"""For `profile`: measures what it costs to send elements to a process, and to receive them."""

import socket
from collections.abc import Sequence
from time import perf_counter
from typing import Any

from bushel.run.thread_time import Stopwatch
from bushel.transport.link import Link
from bushel.transport.rows import pack_values, unpack_values

# The first rounds make the memory that the others use again; the quickest of those counts.
_FIRST_ROUNDS, _ROUNDS = 2, 4
# No more time than that, once there was a round that counts.
_MOST_SECONDS = 0.2


def sending_costs(rows: Sequence[Any]) -> tuple[float, float]:
    """Seconds for an element: of the process that sends it, and of the one that takes it.

    Elements travel by a link as those of workers do. Nothing is known of those that cannot.
    """
    if not rows:
        return 0.0, 0.0
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    sender, receiver = map(Link, ends)
    rounds: list[tuple[float, float, float]] = []
    began = perf_counter()
    try:
        for number in range(_FIRST_ROUNDS + _ROUNDS):
            stopwatch = Stopwatch()
            sender.send(pack_values(list(rows)))
            sending = stopwatch.read().seconds
            stopwatch = Stopwatch()
            values = unpack_values(receiver.receive())
            taken = values if isinstance(values, list) else values.rows()
            taking = stopwatch.read().seconds
            del values, taken
            if number >= _FIRST_ROUNDS:
                rounds.append((sending + taking, sending, taking))
                if perf_counter() - began > _MOST_SECONDS:
                    break
    except Exception:
        # Elements may be anything. Whoever asks for workers is told there that they cannot travel.
        return 0.0, 0.0
    finally:
        sender.close()
        receiver.close()
    _, sending, taking = min(rounds)
    return sending / len(rows), taking / len(rows)
