"""`bushel profile` and `bushel simulate`: the commands; `watch/` has what they call."""

import argparse
import json
from typing import Any

from bushel.cli.command import add_command
from bushel.cli.load_pipeline import ask_for_pipeline, pipeline_of
from bushel.watch.profile import profile
from bushel.watch.simulate import simulate


def add_commands(commands: Any) -> None:
    """Adds `profile` and `simulate` to the commands of `bushel`."""
    asked = _command(commands, "profile", _profile, "what each step costs, and how fast it can be")
    asked.add_argument(
        "--step-seconds", type=float, help="of a training step: also says what is needed to feed it"
    )
    asked.add_argument("--no-verify", action="store_true", help="predict, and try nothing")
    asked = _command(commands, "simulate", _simulate, "predict a training on a cluster")
    asked.add_argument("--step-seconds", type=float, default=0.0, help="of the training (0)")
    asked.add_argument("--hosts", type=int, default=1, help="how many train together (1)")
    asked.add_argument("--workers", type=int, help="of each host (as the pipeline has)")
    asked.add_argument("--cores", type=float, help="of each host (as there are here)")
    asked.add_argument("--bandwidth", type=float, help="bytes a second to each host (as here)")
    asked.add_argument("--steps", type=int, default=1000, help="of the training (1000)")


def _command(commands: Any, name: str, run: Any, words: str) -> argparse.ArgumentParser:
    command = add_command(commands, name, run, words)
    ask_for_pipeline(command)
    command.add_argument("--seconds", type=float, default=10.0, help="to measure, about (10)")
    command.add_argument("--json", action="store_true", help="for programs")
    return command


def _profile(options: argparse.Namespace) -> None:
    made = profile(
        pipeline_of(options.pipeline),
        step_seconds=options.step_seconds,
        seconds=options.seconds,
        verify=not options.no_verify,
    )
    _print(made, options.json)


def _simulate(options: argparse.Namespace) -> None:
    made = simulate(
        pipeline_of(options.pipeline),
        hosts=options.hosts,
        workers=options.workers,
        step_seconds=options.step_seconds,
        bandwidth=options.bandwidth,
        cores=options.cores,
        steps=options.steps,
        seconds=options.seconds,
    )
    _print(made, options.json)


def _print(made: Any, as_json: bool) -> None:
    print(json.dumps(made.to_dict(), indent=2) if as_json else made)
