"""Processes that keep cores busy beside what is measured, as other programs do."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Ends with its parent, whatever becomes of that: it would spin for ever.
SPIN = """
import os, sys
parent = os.getppid()
print(flush=True)
number = 1
while True:
    for _ in range(1_000_000):
        number = number * 48271 % 2147483647
    if os.getppid() != parent:
        sys.exit()
"""


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Lets so many processes spin, in this session and with this niceness: equals of ours.

    (A session of their own would be weighed as one with ours by Linux's autogroups.)
    """
    processes = [
        subprocess.Popen([sys.executable, "-S", "-c", SPIN], stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()
