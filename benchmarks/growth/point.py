"""One point, in a process of its own: a pipeline at one size, with one library.

`python -m benchmarks.growth.point AXIS VARIANT SIZE SYSTEM SECONDS` takes what was prepared as
JSON from standard input, and writes a line for each figure as soon as it is known: whoever cuts
it short still has those before.
"""

import json
import os
import sys
from importlib import import_module
from time import perf_counter
from typing import Any

from benchmarks.growth.axes import AXES
from benchmarks.growth.memory import held_bytes
from benchmarks.throughput import take_for
from benchmarks.workload import parse_no_flags

# As many as a training loop takes before anybody looks at its speed.
EARLY_ELEMENTS = 640
SECONDS_BETWEEN_LOOKS = 0.01
# A few milliseconds are easily doubled by something else; the fastest of so many counts.
RESTORES = 5


def say(**figures: float) -> None:
    print(json.dumps(figures), flush=True)


def seconds_to_restore(dataset: Any, state: Any) -> float:
    """Goes on from a state with an iterator of its own, up to the first element."""
    began = perf_counter()
    stream = iter(dataset)
    stream.set_state(state)
    next(stream)
    spent = perf_counter() - began
    if hasattr(stream, "close"):
        stream.close()
    return spent


def state_bytes(state: Any) -> int:
    return len(state if isinstance(state, bytes) else json.dumps(state, default=repr).encode())


def main(axis_name: str, variant_name: str, size: int, system: str, seconds: float) -> None:
    prepared = json.loads(sys.stdin.read())
    variant = AXES[axis_name].variants[variant_name]
    lib = import_module(system)
    if system == "grain":
        parse_no_flags()
    # What pipelines import has its own benchmark.
    import_module(f"{system}.experimental")
    import_module(f"{system}.sources")
    next(iter(lib.MapDataset.range(4).shuffle(seed=0).map(int).to_iter_dataset().batch(2)))
    say()  # From here on patience counts.
    before, began = held_bytes(), perf_counter()
    dataset = variant.make(lib, size, prepared)
    stream = iter(dataset)
    next(stream)
    first = perf_counter() - began
    say(first=first)
    # One more costs little, and a wrong cost is worse than a late one.
    more = max(1, EARLY_ELEMENTS // variant.elements - 1)
    spent = 0.0
    for _ in range(more):
        next(stream)
        spent = perf_counter() - began
        # To open ten thousand files is not what makes the next elements slow.
        if spent - first > 10 * seconds:
            break
    say(early=spent)
    taken, spent = take_for(AXES[axis_name].run_in, stream, 1)
    # What is slow is told now, in case that no more can be.
    say(cost=spent / taken / variant.elements)
    between_looks = max(1, int(SECONDS_BETWEEN_LOOKS * taken / spent))
    taken, spent = take_for(seconds, stream, between_looks)
    say(cost=spent / taken / variant.elements)
    state = stream.get_state()
    say(state=state_bytes(state), memory=max(0, held_bytes() - before))
    if hasattr(stream, "close"):
        stream.close()
    restores: list[float] = []
    while len(restores) < RESTORES and sum(restores) < seconds:
        restores.append(seconds_to_restore(dataset, state))
        say(restore=min(restores))
    os._exit(0)  # How long an end takes is not what is measured.


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
