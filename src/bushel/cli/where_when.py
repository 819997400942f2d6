"""`bushel where` and `bushel when`: the records of a step, and the steps of a record."""

import argparse
import json
from dataclasses import replace
from typing import Any

from bushel.cli.command import add_command
from bushel.cli.load_pipeline import ask_for_pipeline, pipeline_of
from bushel.errors import PlanError
from bushel.provenance.when import when
from bushel.provenance.where import where
from bushel.watch.recording import read_recording
from bushel.watch.replay import check_pipeline


def add_commands(commands: Any) -> None:
    """Adds both to the commands of `bushel`."""
    asked = _command(commands, "where", _where, "the records that a step is made of")
    asked.add_argument(
        "recording", metavar="RECORDING", nargs="?", help="a recorded run, to run from its states"
    )
    asked.add_argument("--step", required=True, help="its number, from 0; or several, as 10:20")
    asked.add_argument("--state", help="a file with a state, in JSON, to count and run from")
    asked.add_argument("--replay", action="store_true", help="run the pipeline, whatever is known")
    asked = _command(commands, "when", _when, "the steps at which a record is seen")
    asked.add_argument(
        "recording", metavar="RECORDING", nargs="?", help="a recorded run: the steps that it made"
    )
    asked.add_argument("--key", required=True, type=int, help="its key, as `where` tells it")
    asked.add_argument("--source", type=int, help="which source, where there are several")
    asked.add_argument("--steps", type=int, help="how many steps are looked at")
    asked.add_argument("--replay", action="store_true", help="run the pipeline to find out")


def _command(commands: Any, name: str, run: Any, words: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, run, words)
    ask_for_pipeline(command)
    command.add_argument("--hosts", type=int, help="number of hosts: show the lanes of all of them")
    command.add_argument("--json", action="store_true", help="for programs")
    return command


def _steps(text: str) -> Any:
    try:
        parts = [int(part) if part else None for part in text.split(":")]
    except ValueError:
        parts = []
    if not 1 <= len(parts) <= 3 or parts == [None]:
        raise PlanError(f"--step takes a number, or several as 10:20, and got {text!r}.")
    return parts[0] if len(parts) == 1 else slice(*parts)


def _where(options: argparse.Namespace) -> None:
    state = None
    if options.state is not None:
        with open(options.state, "rb") as file:
            state = json.load(file)
    thing, steps = pipeline_of(options.pipeline), _steps(options.step)
    state_step, beyond = 0, ""
    if options.recording is not None:
        if state is not None:
            raise PlanError("`where` takes a recording or --state, and got both.")
        recording = read_recording(options.recording)
        start = recording.before((steps.start or 0) if isinstance(steps, slice) else steps)
        state, state_step = recording.whole_state(start["state"]), start["step"]
        if not isinstance(steps, slice):
            beyond = recording.beyond(steps)
    answer = where(
        thing,
        steps,
        state=state,
        state_step=state_step,
        hosts=options.hosts,
        replay=options.replay,
    )
    if beyond:
        answer = replace(answer, notes=(*answer.notes, beyond))
    _print(answer, options.json)


def _when(options: argparse.Namespace) -> None:
    thing = pipeline_of(options.pipeline)
    recording = None
    if options.recording is not None:
        if options.steps is not None:
            raise PlanError("`when` takes a recording, which says the steps, or --steps.")
        recording = read_recording(options.recording)
        check_pipeline(recording, thing)
        options.steps = max((stop for _, stop in recording.step_ranges()), default=0)
    answer = when(
        thing,
        options.key,
        source=options.source,
        steps=options.steps,
        hosts=options.hosts,
        replay=options.replay,
    )
    if recording is not None:
        answer = answer.within(recording.step_ranges())
    # The same is another word here.
    notes = tuple(note.replace("`replay=True`", "`--replay`") for note in answer.notes)
    _print(replace(answer, notes=notes), options.json)


def _print(answer: Any, as_json: bool) -> None:
    print(json.dumps(answer.to_dict(), indent=2, default=str) if as_json else answer)
