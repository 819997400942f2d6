"""The option `--pipeline FILE.py:NAME`: runs the file and gives the dataset or loader it names."""

import argparse
import importlib.util
import inspect
import os
import sys
from typing import Any

import cloudpickle

from bushel.errors import PlanError


def ask_for_pipeline(command: argparse.ArgumentParser) -> None:
    """Has a command take the pipeline that it is about."""
    command.add_argument(
        "--pipeline",
        required=True,
        metavar="FILE.py:NAME",
        help="the dataset or loader, or a function without arguments that makes it",
    )


def pipeline_of(text: str) -> Any:
    """The dataset or loader that `FILE.py:NAME` means."""
    path, colon, name = text.rpartition(":")
    if not colon or not path or not name:
        raise PlanError(
            f"a pipeline is named as FILE.py:NAME, such as train.py:make, and got {text!r}."
        )
    if not os.path.isfile(path):
        raise PlanError(f"{text!r} names the file {path!r}, and there is none.")
    # As if it were run from where it lies; but not as a program: its `__main__` part is not run.
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("bushel_pipeline", path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{text!r} names {path!r}, which is no Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # Workers cannot import a module of that name: what is in it is sent to them.
    cloudpickle.register_pickle_by_value(module)
    spec.loader.exec_module(module)
    made = getattr(module, name, None)
    if made is None:
        raise PlanError(f"{path!r} has no {name!r}: a pipeline is named as FILE.py:NAME.")
    if not callable(made):
        return made
    try:
        inspect.signature(made).bind()
    except TypeError as error:
        raise PlanError(
            f"{text!r} takes arguments ({error}), and is called without any: name a dataset, or a "
            "function that makes one of nothing."
        ) from None
    except ValueError:
        pass  # Some functions of C do not tell their arguments.
    return made()
