"""States that earlier versions saved lead to the same elements, for ever."""

import functools
import json
import shutil
from pathlib import Path
from typing import Any

import orbax.checkpoint as ocp
import pytest

import bushel
from tests.checkpoint.managers import restore
from tests.checkpoint.pipelines import MAKERS
from tests.checkpoint.test_orbax_grain import GRAIN_DATASETS
from tests.golden.programs import digest_of, from_json, programs
from tests.thorough import spread

FOLDER = Path(__file__).parent
VERSIONS = sorted(path.stem.removeprefix("states-") for path in FOLDER.glob("states-*.jsonl"))


@functools.cache
def _states(version: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for line in (FOLDER / f"states-{version}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        found.setdefault(entry["program"], []).append(entry)
    return found


CASES = [(version, name) for version in VERSIONS for name in _states(version)]


def test_some_are_kept() -> None:
    assert "0.1.0" in VERSIONS
    assert len(_states("0.1.0")) > 300


@pytest.mark.parametrize(("version", "name"), CASES)
def test_a_kept_state_leads_to_the_same_elements(version: str, name: str) -> None:
    make = programs()[name]
    for entry in spread(_states(version)[name], 3):
        ds = make()
        with iter(ds) as iterator:
            iterator.set_state(from_json(ds, entry["state"]))
            assert digest_of(iterator) == entry["rest"], f"after {entry['taken']} elements"


def _folders() -> list[tuple[str, str]]:
    found = []
    for version in VERSIONS:
        rests = json.loads((FOLDER / f"orbax-{version}" / "rests.json").read_text())
        found += [(version, name) for name in rests]
    return found


@pytest.mark.parametrize(("version", "name"), _folders())
def test_a_kept_folder_leads_to_the_same_elements(version: str, name: str, tmp_path: Path) -> None:
    kept = FOLDER / f"orbax-{version}"
    library, _, program = name.partition("/")
    # A copy: managers tidy up in their folders.
    shutil.copytree(kept / library / program.replace(" ", "-"), tmp_path / "saved")
    make: Any = MAKERS[program] if library == "bushel" else GRAIN_DATASETS[program]
    ds = make() if library == "bushel" else make(bushel)
    with ocp.CheckpointManager(tmp_path / "saved") as manager:
        iterator = restore(manager, 7, iter(ds))
    rest = digest_of(iterator)
    iterator.close()
    assert rest == json.loads((kept / "rests.json").read_text())[name]
