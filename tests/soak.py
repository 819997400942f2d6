"""Random pipelines with workers under attack, for minutes: `make soak MINUTES=10`.

Each round takes one of the contract's pipelines and some workers, and goes through the stream
while workers and their nursery are killed, crash or are stopped, the trainer is interrupted, files
cannot be written, and the stream is resumed with another number of workers. Every element and
every state is compared with those of a run without workers. After each round no process, no open
file and no name in shared memory is left, and memory does not grow.

A seed repeats the rounds, as far as the system lets signals strike at the same moments.
"""

import argparse
import collections
import gc
import logging
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from tests.contract.events import Event, freeze, freeze_error, freeze_state, run_events
from tests.contract.pipelines import PIPELINES, Kit, cached_on_disk, stream_of
from tests.nursery import kept_pids
from tests.workers.processes import descendants, nurseries, wait_until, workers_of
from tests.workers.streams import assert_same_events, with_workers

# A stopped worker is found after so long.
_HANG_SECONDS = 1.0
_MOST_WORKERS = 4
_MOST_ATTACKS = 4
# An interrupt comes some time within what an element takes with workers.
_MOST_SECONDS_TO_INTERRUPT = 0.02
# So large files may be where no full disk can be made.
_FULL_BYTES = 200
# Rounds after which memory is as large as it has to be, and by how much it may still differ.
_WARM_ROUNDS = 30
_MOST_GROWTH_MIB = 100

INTERRUPTED, RESUMED, FULL = "trainer interrupted", "resumed with other workers", "disk full"
SIGNALS: dict[str, tuple[Callable[[], set[int]], int]] = {
    "worker killed": (workers_of, signal.SIGKILL),
    "worker crashed": (workers_of, signal.SIGSEGV),
    "worker stopped": (workers_of, signal.SIGSTOP),
    "nursery killed": (nurseries, signal.SIGKILL),
}
ATTACKS = [*SIGNALS, INTERRUPTED, RESUMED]
# A disk that is full shows only where something is written to it.
WRITING = "IterDataset.cache: on disk"


class Soak:
    """One run: rounds, and what was tried in them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.tried: collections.Counter[str] = collections.Counter()
        self._before = descendants()
        self._expected: dict[str, list[Event]] = {}
        # What the round that goes on is.
        self.at = ""

    def round(self) -> None:
        """Goes through one stream. Raises if anything differs."""
        chosen = self._random
        is_full = chosen.random() < 0.05
        name = WRITING if is_full else chosen.choice(sorted(PIPELINES))
        expected = self.expect(name)
        attacks = {
            chosen.randrange(len(expected) + 1): chosen.choice(ATTACKS)
            for _ in range(chosen.randrange(_MOST_ATTACKS + 1))
        }
        self.at = f"{name}, {attacks}{', ' + FULL if is_full else ''}"
        names = _names_in_memory()
        with _full_disk() if is_full else nullcontext(("", True)) as (disk, has_room_for_workers):
            ds = cached_on_disk(Kit(), f"{disk}/kept") if is_full else stream_of(name, Kit())
            most = _MOST_WORKERS if has_room_for_workers else 0
            self._go_through(ds, expected, attacks, most)
        self.tried["rounds"] += 1
        self.tried["elements compared"] += len(expected)
        self.tried[FULL] += is_full
        assert wait_until(lambda: not self._left()), f"processes left behind: {self._left()}"
        # (Other programs on this machine may have some for a while.)
        assert wait_until(lambda: _names_in_memory() <= names), _names_in_memory() - names

    def expect(self, name: str) -> list[Event]:
        """What a stream is without workers."""
        if name not in self._expected:
            self._expected[name] = run_events(stream_of(name, Kit()))
        return self._expected[name]

    def _left(self) -> set[int]:
        return descendants() - self._before - kept_pids()

    def _go_through(
        self, ds: Any, expected: list[Event], attacks: dict[int, str], most_workers: int
    ) -> None:
        iterator = self._open(ds, most_workers)
        got: list[Event] = []
        try:
            while True:
                attack = attacks.pop(len(got), "")
                before = iterator.get_state()
                if attack == RESUMED:
                    iterator.close()
                    iterator = self._open(ds, most_workers)
                    iterator.set_state(before)
                    self.tried[RESUMED] += 1
                elif attack in SIGNALS:
                    self.tried[attack] += _strike(*SIGNALS[attack], self._random)
                with _interrupted(attack == INTERRUPTED, self._random):
                    try:
                        what = freeze(next(iterator))
                    except StopIteration:
                        break
                    except KeyboardInterrupt:
                        self.tried[INTERRUPTED] += 1
                        # The element may have been on its way into a variable.
                        if iterator.get_state() != before:
                            iterator.set_state(before)
                        continue
                    except Exception as error:
                        what = freeze_error(error)
                got.append((what, freeze_state(iterator.get_state())))
        finally:
            iterator.close()
        assert_same_events(got, expected)

    def _open(self, ds: Any, most_workers: int) -> Any:
        count = self._random.randint(min(1, most_workers), most_workers)
        return iter(with_workers(ds, count, hang_timeout=_HANG_SECONDS, on_hang="replace"))


def _strike(found: Callable[[], set[int]], number: int, chosen: random.Random) -> bool:
    """Sends a signal to one of them, if there is one; returns whether there was."""
    pids = sorted(found())
    if pids:
        with suppress(ProcessLookupError):
            os.kill(chosen.choice(pids), number)
            return True
    return False


@contextmanager
def _interrupted(is_so: bool, chosen: random.Random) -> Iterator[None]:
    """Has a KeyboardInterrupt raised soon, wherever bushel is then."""
    if not is_so:
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_globals.get("__name__", "").startswith("bushel."):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, chosen.uniform(1e-6, _MOST_SECONDS_TO_INTERRUPT))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _full_disk() -> Iterator[tuple[str, bool]]:
    """A folder on a disk that is full, and whether workers can be started beside it.

    Where none may be mounted, no file of this process can grow, nor what it shares with workers.
    """
    with tempfile.TemporaryDirectory() as folder:
        mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "bushel-soak", folder]
        if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (_FULL_BYTES, hard))
            try:
                yield folder, False
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            return
        try:
            with suppress(OSError), open(f"{folder}/fill", "wb", 0) as file:
                while True:
                    file.write(bytes(4096))
            yield folder, True
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


def _names_in_memory() -> set[str]:
    """What has a name in shared memory, and one of bushel's."""
    with suppress(FileNotFoundError):
        return {name for name in os.listdir("/dev/shm") if "bushel" in name}
    return set()


def _open_files() -> dict[str, str]:
    """What this process has open, by its numbers; not what only garbage has."""
    gc.collect()
    found = {}
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # That of the list itself.
            found[number] = os.readlink(f"/proc/self/fd/{number}")
    return found


def _memory_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def run(minutes: float, seed: int) -> collections.Counter[str]:
    """Goes on until the minutes are over, or something differs."""
    soak, memory, grown = Soak(seed), 0.0, 0.0
    files: dict[str, str] = {}
    for name in PIPELINES:  # Some import what takes a lot of memory.
        soak.expect(name)
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        try:
            soak.round()
            rounds = soak.tried["rounds"]
            opened = _open_files()
            if rounds == 1:
                files = opened
            assert len(opened) <= len(files), (
                f"open files are left: {opened.items() - files.items()}"
            )
            if rounds == _WARM_ROUNDS:
                memory = _memory_mib()
            grown = _memory_mib() - memory if rounds > _WARM_ROUNDS else 0.0
            assert grown < _MOST_GROWTH_MIB, f"memory has grown by {grown:.0f} MiB"
        except BaseException:
            print(f"soak: failed in {soak.at}; make soak SEED={seed} repeats it", flush=True)
            raise
    soak.tried["growth of memory, MiB"] = round(grown)
    return soak.tried


def main() -> int:
    """Reads the arguments, and prints a table of what was tried."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    told = parser.parse_args()
    print(f"soak: seed {told.seed}, {told.minutes:g} minutes", flush=True)
    # What ends workers is what is tried, and no news.
    logging.getLogger("bushel").setLevel(logging.ERROR)
    tried = run(told.minutes, told.seed)
    for what in ["rounds", "elements compared", *ATTACKS, FULL, "growth of memory, MiB"]:
        print(f"{what:28} {tried[what]:10,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
