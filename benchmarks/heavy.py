"""`python -m benchmarks heavy`: batches that take long, in every form, beside two cores by hand.

JPEGs are decoded and cropped (or records compressed), in batches that take one core so many
seconds each. By hand means two threads that make such batches, of 1 s at most. Each cell is
measured between two readings by hand, in one process, after the first second or the first three
batches, whichever is later; `from` tells after how many batches, and when, threads were at work.
"""

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import bushel
from benchmarks import proof
from benchmarks.busy.jobs import compress
from benchmarks.by_hand import on_threads
from benchmarks.records import Reused
from benchmarks.workloads.jpeg_decode import CORES, decode_and_crop, jpegs
from benchmarks.workloads.random_map import SEED, positioned

RECORDS = 10**9
GOAL = 0.95
RUN_IN_SECONDS, RUN_IN_BATCHES = 1.0, 3
LARGEST_BY_HAND_SECONDS = 1.0
FORMS = ("batch first", "records first")
OPTIONS: dict[str, bushel.ReadOptions | None] = {
    "default": None,
    "2 (buffer 4)": bushel.ReadOptions(num_threads=2, prefetch_buffer_size=4),
    "2 (buffer 16)": bushel.ReadOptions(num_threads=2, prefetch_buffer_size=16),
    "16": bushel.ReadOptions(num_threads=16),
}
WORKERS = f"{CORES} workers"


@dataclass(frozen=True, slots=True)
class Work:
    """A record made by hand, and the dataset of such records."""

    by_hand: Callable[[int], Any]
    dataset: Callable[[], Any]


def _jpeg_by_hand(key: int) -> Any:
    files = jpegs()
    return decode_and_crop(files[key % len(files)], positioned(key))


def _jpeg_dataset() -> Any:
    source = bushel.MapDataset.source(Reused(jpegs(), RECORDS))
    return source.random_map(decode_and_crop, seed=SEED)


WORKS = {
    "jpeg": Work(_jpeg_by_hand, _jpeg_dataset),
    "zlib": Work(compress, lambda: bushel.MapDataset.range(RECORDS).map(compress)),
}


def by_hand(work: Work, batch_size: int) -> Iterator[Any]:
    def batch(start: int) -> Any:
        return np.stack([work.by_hand(key) for key in range(start, start + batch_size)])

    return on_threads(batch, count(0, batch_size), CORES, 2 * CORES)


def pipeline(work: Work, form: str, options: str, batch_size: int) -> Iterator[Any]:
    dataset, read = work.dataset(), OPTIONS.get(options)
    if form == "batch first":
        stream = dataset.batch(batch_size).to_iter_dataset(read)
    else:
        stream = dataset.to_iter_dataset(read).batch(batch_size)
    if options == WORKERS:
        stream = stream.mp_prefetch(bushel.MultiprocessingOptions(num_workers=CORES))
    iterator: Iterator[Any] = iter(stream)
    return iterator


def seconds_of_record(work: Work) -> float:
    """What a record takes one core."""
    for key in range(8):
        work.by_hand(key)
    began, cpu = time.perf_counter(), time.thread_time()
    done = 0
    while time.perf_counter() < began + 0.3:
        work.by_hand(done)
        done += 1
    return (time.thread_time() - cpu) / done


def rate(
    batches: Iterator[Any], batch_size: int, run_in_batches: int, seconds: float
) -> tuple[float, str]:
    """Records a second after the start; and from when on there were threads."""
    began = time.perf_counter()
    since, taken = "-", 0
    while taken < run_in_batches or time.perf_counter() < began + RUN_IN_SECONDS:
        next(batches)
        taken += 1
        if since == "-" and _has_threads():
            since = f"{taken} ({time.perf_counter() - began:.2g} s)"
    began, taken = time.perf_counter(), 0
    # Batches come in pairs, where two threads have begun with them at the same time.
    while taken % CORES or time.perf_counter() < began + seconds:
        next(batches)
        taken += 1
    return taken * batch_size / (time.perf_counter() - began), since


def _has_threads() -> bool:
    return any(thread.name.startswith("bushel-read") for thread in threading.enumerate())


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks heavy", description=__doc__)
    parser.add_argument("--work", default="jpeg", choices=WORKS)
    parser.add_argument("--batches", default="0.01,0.075,1", help="seconds each: %(default)s")
    parser.add_argument("--forms", default=",".join(FORMS), help="%(default)s")
    parser.add_argument("--options", help=f"separated by semicolons: {';'.join(OPTIONS)};{WORKERS}")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each reading")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every reading here")
    options = parser.parse_args(argv)
    work = WORKS[options.work]
    ways = options.options.split(";") if options.options else [*OPTIONS, WORKERS]
    each = seconds_of_record(work)
    ratios: dict[str, list[float]] = {}
    try:
        for number in range(options.rounds):
            for seconds in map(float, options.batches.split(",")):
                for form in options.forms.split(","):
                    measure(work, each, seconds, form, ways, options.seconds, ratios, number)
    except KeyboardInterrupt:
        print("cut short")
    print(
        f"\n| batches of | form | {' | '.join(ways)} |\n| {' | '.join(['---'] * (len(ways) + 2))} |"
    )
    for name in dict.fromkeys(key.rpartition(",")[0] for key in ratios):
        cells = [_told(ratios.get(f"{name},{way}", [])) for way in ways]
        print(f"| {name.replace(',', ' s | ')} | {' | '.join(cells)} |")
    print(f"\nOf {options.work} alone on {CORES} cores; goal >= {GOAL}.")
    if options.json:
        options.json.write_text(json.dumps(ratios, indent=1) + "\n")
    return int(any(median(values) < GOAL for values in ratios.values()))


def measure(
    work: Work,
    each: float,
    seconds: float,
    form: str,
    ways: Sequence[str],
    reading: float,
    ratios: dict[str, list[float]],
    number: int,
) -> None:
    """One row: every way between two readings by hand."""
    batch_size = max(1, round(seconds / each))
    hand_size = max(1, round(min(seconds, LARGEST_BY_HAND_SECONDS) / each))

    def hand() -> float:
        batches = by_hand(work, hand_size)
        for _ in range(2 * CORES):
            next(batches)
        began, taken = time.perf_counter(), 0
        while taken % CORES or time.perf_counter() < began + reading / 2:
            next(batches)
            taken += 1
        spent = time.perf_counter() - began
        proof.close(batches)
        return taken * hand_size / spent

    before = hand()
    for way in ways:
        batches = pipeline(work, form, way, batch_size)
        run_in = 2 * CORES if way == WORKERS else RUN_IN_BATCHES
        found, since = rate(batches, batch_size, run_in, reading)
        proof.close(batches)
        after = hand()
        ratio = 2 * found / (before + after)
        ratios.setdefault(f"{seconds:g},{form},{way}", []).append(ratio)
        print(
            f"{number + 1} {seconds:g} s, {form}, {way}: {found:.0f}/s, by hand {before:.0f} and "
            f"{after:.0f}: {ratio:.2f}; threads from {since}",
            flush=True,
        )
        before = after


def _told(values: list[float]) -> str:
    if not values:
        return "-"
    spread = (max(values) - min(values)) / 2
    return f"{median(values):.2f}" + (f" ±{spread:.2f}" if len(values) > 1 else "")
