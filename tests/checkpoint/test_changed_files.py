"""What a state remembers of many files is looked up where that is cheap."""

import ast
import importlib
import importlib.util
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.core.code_used import literals_of
from bushel.core.fingerprint import digest_of
from bushel.errors import ChangedPipelineWarning
from bushel.files.local import stamp_of


def _written(folder: Path, count: int, ending: str, text: str) -> list[str]:
    paths = [folder / f"{number:05d}{ending}" for number in range(count)]
    for path in paths:
        path.write_text(text)
    return [str(path) for path in paths]


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The files that are looked at for their stamps."""
    looked: list[Any] = []
    stat = os.stat

    def noting(path: Any, *args: Any, **more: Any) -> os.stat_result:
        looked.append(path)
        return stat(path, *args, **more)

    monkeypatch.setattr("bushel.checkpoint.code_and_files.os.stat", noting)
    return looked


def test_files_that_are_open_are_not_looked_at_again(tmp_path: Path, looks: list[Any]) -> None:
    paths = _written(tmp_path, 20, ".jsonl", '{"x": 1}\n')
    ds = MapDataset.source(bushel.sources.JsonLinesDataSource(paths)).to_iter_dataset()
    iterator = iter(ds)
    next(iterator)
    looks.clear()
    state = iterator.get_state()
    again = iter(ds)
    again.set_state(state)
    assert not looks
    # The stamps are those that files have, as in states that were saved before.
    stamps = [stamp_of(os.stat(path)) for path in paths]
    assert state["bushel"]["made_with"]["files"] == {"20 files": digest_of("\n".join(stamps))}
    # One that is written to since is noticed by whoever opens it anew.
    os.utime(paths[11], (1, 1))
    other = iter(MapDataset.source(bushel.sources.JsonLinesDataSource(paths)).to_iter_dataset())
    with pytest.warns(ChangedPipelineWarning, match="20 files changed"):
        other.set_state(state)


def test_of_very_many_files_some_are_looked_at(
    tmp_path: Path, looks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bushel.checkpoint.code_and_files._MOST_LOOKS", 16)
    paths = _written(tmp_path, 100, ".txt", "some text")
    ds = MapDataset.source(bushel.sources.FilesDataSource(paths)).to_iter_dataset()
    iterator = iter(ds)
    next(iterator)
    looks.clear()
    state = iterator.get_state()
    assert len(looks) <= 16
    assert list(state["bushel"]["made_with"]["files"]) == ["15 of 100 files"]
    iter(ds).set_state(state, strict=True)
    for path in paths:
        os.utime(path, (1, 1))
    with pytest.warns(ChangedPipelineWarning, match="15 of 100 files changed"):
        iter(ds).set_state(state)
    # Of a state that was saved when all were looked at nothing is said.
    state["bushel"]["made_with"]["files"] = {"100 files": "0"}
    iter(ds).set_state(state, strict=True)


def test_states_are_taken_while_another_thread_parses(tmp_path: Path) -> None:
    """Python 3.11's `ast` keeps one count for all threads, and complains where it is disturbed."""
    module = tmp_path / "a_module_of_the_program.py"
    module.write_text("".join(f"NUMBER_{i} = {i}\n" for i in range(2000)) + "NUMBER_7 = 8\n")
    sys.path.insert(0, str(tmp_path))
    done = threading.Event()

    def parse() -> None:
        while not done.is_set():
            try:
                ast.parse("x = " + "[" * 50 + "]" * 50)
            except SystemError:
                continue

    thread = threading.Thread(target=parse)
    thread.start()
    try:
        importlib.import_module("a_module_of_the_program")
        for _ in range(20):
            literals_of.cache_clear()
            found = literals_of("a_module_of_the_program")
            assert len(found) == 1999 and "NUMBER_7" not in found
    finally:
        done.set()
        thread.join()
        sys.path.remove(str(tmp_path))
        sys.modules.pop("a_module_of_the_program", None)
