"""`bushel replay`, `diff` and `why-slow`: commands for recordings of the flight recorder."""

import argparse
import json
import os
import sys
from typing import Any

from bushel.cli.command import add_command
from bushel.cli.load_pipeline import pipeline_of
from bushel.cli.show import brief, leaves_of
from bushel.errors import PlanError, RecordError
from bushel.watch.compare import compared
from bushel.watch.durations import duration, percent
from bushel.watch.live_processes import LiveProcess, process
from bushel.watch.plain_text import number, plural
from bushel.watch.recording import Recording, read_recording
from bushel.watch.replay import replayed, save_element
from bushel.watch.why_slow import why_slow


def add_commands(commands: Any) -> None:
    """Adds them to the commands of `bushel`."""
    replay = add_command(commands, "replay", _replay, "make a step of a recorded run once more")
    replay.add_argument("recording", metavar="RECORDING")
    replay.add_argument("--step", type=int, required=True, help="its number, from 0")
    replay.add_argument(
        "--pipeline",
        required=True,
        metavar="FILE.py:NAME",
        help="the dataset or loader, or a function without arguments that makes it",
    )
    replay.add_argument("--save", metavar="FILE.npz", help="a new file for what is in the step")
    diff = add_command(commands, "diff", _diff, "the first step at which two recorded runs differ")
    diff.add_argument("recordings", metavar="RECORDING", nargs=2)
    diff.add_argument("--json", action="store_true", help="for programs")
    slow = add_command(
        commands, "why-slow", _why_slow, "why a run waits for data, or a recorded one did"
    )
    slow.add_argument(
        "told_of",
        metavar="PID|RECORDING",
        help="a process that trains, or the file of a recorded run",
    )


def _read(path: str) -> Recording:
    """Reads a recording, and says on the side what is wrong with it."""
    recording = read_recording(path)
    for line, why in recording.damaged:
        print(f"bushel: line {line} of {path} is damaged and passed over: {why}", file=sys.stderr)
    if recording.cut:
        print(f"bushel: {path} was cut within its last line", file=sys.stderr)
    return recording


def _replay(options: argparse.Namespace) -> None:
    if options.step < 0:
        raise PlanError(f"--step is the number of a step, and cannot be {options.step}.")
    recording = _read(options.recording)
    made = replayed(recording, pipeline_of(options.pipeline), options.step)
    print(f"step {number(made.step)}, made from the state before step {number(made.start)}")
    if made.beyond:
        print(f"{made.beyond}; this is what the pipeline makes there")
    for name, leaf in leaves_of(made.element):
        print(f"  {name or 'element'}: {brief(leaf)}")
    for check in made.checks:
        print(check)
    if options.save is not None:
        names = save_element(options.save, made.element)
        print(f"saved to {options.save}: {', '.join(names)}")
    if made.differs:
        raise RecordError(
            "this is not what was handed out: a function, a file or a package is another than it "
            f"was then ({_versions(recording)})."
        )


def _versions(recording: Recording) -> str:
    versions = recording.header.get("versions")
    if not isinstance(versions, dict):
        return "the versions of then are not known"
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _diff(options: argparse.Namespace) -> None:
    one, other = map(_read, options.recordings)
    answer = compared(one, other)
    print(json.dumps(answer.to_dict(), indent=2) if options.json else answer)


def _why_slow(options: argparse.Namespace) -> None:
    # A recording whose name is a number is written as ./7.
    if options.told_of.isdecimal() and not os.path.isfile(options.told_of):
        _why_slow_now(process(int(options.told_of)))
    else:
        _why_slow_then(options.told_of)


def _why_slow_now(program: LiveProcess) -> None:
    for one in program.iterators:
        stats = one.published.stats
        print(
            f"iterator {one.published.iterator}: your loop waited {percent(stats.wait_share)} of "
            f"its time ({duration(stats.wait_seconds)} of {duration(stats.elapsed_seconds)})"
        )
        for sentence in stats.why_slow():
            print(f"why slow: {sentence}")


def _why_slow_then(path: str) -> None:
    recording = _read(path)
    timed = [entry for entry in recording.entries if "seconds" in entry]
    if not timed:
        raise RecordError(f"{path!r} has no step: nothing was handed out.")
    wait, seconds = (sum(entry[name] for entry in timed) for name in ("wait", "seconds"))
    share = percent(wait / seconds if seconds else 0.0)
    print(f"your loop waited {share} of its time ({duration(wait)} of {duration(seconds)})")
    worst = max(timed, key=lambda entry: float(entry["wait"]))
    if wait:
        print(f"most of it at once: {duration(worst['wait'])} up to step {number(worst['step'])}")
    stats = recording.stats()
    cores = recording.header.get("cores")
    if stats is None:
        print(f"statistics were not written yet, after {plural(len(recording.steps), 'line')}")
        return
    known = float(cores) if isinstance(cores, (int, float)) else None
    for sentence in why_slow(stats, known):
        print(f"why slow: {sentence}")
    for event in recording.entries:
        if event.get("event") in _TOLD:
            facts = {name: event[name] for name in event if name not in ("step", "event", "pool")}
            told = ", ".join(f"{name.replace('_', ' ')} {fact}" for name, fact in facts.items())
            print(f"step {number(event['step'])}: {event['event']} ({told})")


# Events that say something about speed.
_TOLD = ("workers died", "workers", "tasks ahead", "threads", "bad records", "error")
