"""Writes the states of this version, to be restored by every later one.

    python -m tests.golden.write 0.1.0

A file that is there already is never written again: it would be no witness.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import grain
import orbax.checkpoint as ocp

from bushel.checkpoint import CheckpointSave
from tests.checkpoint.pipelines import MAKERS, ahead
from tests.checkpoint.test_orbax_grain import GRAIN_DATASETS
from tests.golden.programs import as_json, digest_of, from_json, programs

FOLDER = Path(__file__).parent


def _moments(make: Any) -> list[int]:
    """After how many elements a state is taken: at the start, early, late, at the end."""
    count = 0
    with iter(make()) as iterator:
        while True:
            try:
                next(iterator)
            except StopIteration:
                break
            except Exception:
                pass
            count += 1
    return sorted({0, min(1, count), count // 2, max(0, count - 1), count})


def _advance(iterator: Any, count: int) -> None:
    for _ in range(count):
        try:
            next(iterator)
        except StopIteration:
            raise
        except Exception:
            continue


def states_of(make: Any) -> list[Any]:
    """States of a program, each with what comes after it."""
    found = []
    for taken in _moments(make):
        with iter(make()) as iterator:
            _advance(iterator, taken)
            state = as_json(iterator.get_state())
            rest = digest_of(iterator)
        with iter(make()) as again:
            again.set_state(from_json(make(), json.loads(json.dumps(state))))
            assert digest_of(again) == rest
        found.append({"taken": taken, "state": state, "rest": rest})
    return found


def _write_states(path: Path) -> None:
    lines = []
    for name, make in programs().items():
        for found in states_of(make):
            lines.append(json.dumps({"program": name, **found}))
    path.write_text("\n".join(lines) + "\n")
    print(path, len(lines), "states", path.stat().st_size, "bytes")


def _write_folders(folder: Path) -> None:
    rests = {}
    for name, make in MAKERS.items():
        with ocp.CheckpointManager(folder / "bushel" / name.replace(" ", "-")) as manager:
            iterator = ahead(iter(make()), 2)
            manager.save(7, args=ocp.args.Composite(data=CheckpointSave(iterator)))
            manager.wait_until_finished()
            rests[f"bushel/{name}"] = digest_of(iterator)
            iterator.close()
    for name, of_library in GRAIN_DATASETS.items():
        with ocp.CheckpointManager(folder / "grain" / name.replace(" ", "-")) as manager:
            theirs = ahead(iter(of_library(grain)), 3)
            saved = grain.checkpoint.CheckpointSave(theirs)
            manager.save(7, args=ocp.args.Composite(data=saved))
            manager.wait_until_finished()
            rests[f"grain/{name}"] = digest_of(theirs)
    (folder / "rests.json").write_text(json.dumps(rests, indent=1) + "\n")


def main(version: str) -> None:
    states, folder = FOLDER / f"states-{version}.jsonl", FOLDER / f"orbax-{version}"
    for path in (states, folder):
        if os.path.lexists(path):
            sys.exit(f"{path} is there already, and is kept as it is.")
    _write_states(states)
    _write_folders(folder)


if __name__ == "__main__":
    main(sys.argv[1])
