"""The line that tells how far long work has come: where it is shown, and what switches it off."""

import gc
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import bushel
from bushel.files import progress_line as module
from bushel.files.progress_line import ProgressLine, look_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUSHEL_PROGRESS", raising=False)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_QUIET_SECONDS", "_EVERY_SECONDS", "_EVERY_SECONDS_IN_A_LOG"):
        monkeypatch.setattr(module, name, 0.0)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel, as a notebook's program has one."""
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=object()))
    monkeypatch.setitem(sys.modules, "IPython", shell)  # type: ignore[arg-type]


def test_short_work_says_nothing() -> None:
    stream = Terminal()
    with ProgressLine("indexing", 100, stream=stream) as progress:
        for done in range(100):
            progress.to(done)
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_a_terminal_has_one_line_that_is_removed_at_the_end() -> None:
    stream = Terminal()
    with ProgressLine("indexing a.tar", 2_000_000, stream=stream) as progress:
        progress.to(500_000)
        progress.to(1_000_000)
    parts = stream.getvalue().split("\r\x1b[K")
    assert parts[1].startswith("indexing a.tar: 25% of 2.0 MB, ")
    assert parts[2].startswith("indexing a.tar: 50% of 2.0 MB, ")
    assert parts[3:] == [""]


@pytest.mark.usefixtures("at_once", "notebook")
def test_a_notebook_has_one_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    with ProgressLine("x", 10, "records", stream=stream) as progress:
        progress.to(5)
    _, line, spaces, end = stream.getvalue().split("\r")
    assert line.startswith("x: 50% of 10 records") and spaces == " " * len(line) and end == ""


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("value", ["", "0"])
def test_a_log_has_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_PROGRESS", value)
    stream = io.StringIO()
    with ProgressLine("indexing", 10, "records", stream=stream) as progress:
        progress.to(5)
    assert stream.getvalue() == ""


@pytest.mark.usefixtures("at_once")
def test_a_log_has_lines_if_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSHEL_PROGRESS", "1")
    stream = io.StringIO()
    with ProgressLine("indexing", 10, unit="records", stream=stream) as progress:
        progress.to(5)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("indexing: 50% of 10 records, ")


@pytest.mark.parametrize(
    ("stream", "variable", "asked", "look"),
    [
        (Terminal(), None, None, "terminal"),
        (Terminal(), None, False, "none"),
        (Terminal(), "0", None, "none"),
        (Terminal(), "off", True, "none"),
        (io.StringIO(), None, None, "none"),
        (io.StringIO(), None, True, "log"),
        (io.StringIO(), "1", None, "log"),
        (io.StringIO(), "1", False, "log"),
        (None, "1", True, "none"),
    ],
)
def test_who_decides(
    stream: Any, variable: str | None, asked: bool | None, look: str, monkeypatch: Any
) -> None:
    """The environment comes before the program, and the program before what the stream is."""
    if variable is not None:
        monkeypatch.setenv("BUSHEL_PROGRESS", variable)
    assert look_of(stream, asked) == look


@pytest.mark.usefixtures("at_once")
def test_the_first_of_several_is_shown() -> None:
    stream = Terminal()
    with ProgressLine("all files", 2, "files", stream=stream) as outer:
        with ProgressLine("one of them", 10, stream=stream) as inner:
            inner.to(5)
        assert stream.getvalue() == ""
        outer.to(1)
    assert "all files: 50% of 2 files" in stream.getvalue()
    with ProgressLine("another", 10, "files", stream=stream) as inner:
        inner.to(5)
    assert "another: 50%" in stream.getvalue()


@pytest.mark.usefixtures("at_once")
def test_one_that_is_given_up_does_not_hide_others() -> None:
    stream = Terminal()
    lost = ProgressLine("lost", 2, "files", stream=stream)
    del lost
    gc.collect()
    with ProgressLine("here", 2, "files", stream=stream) as progress:
        progress.to(1)
    assert "here: 50%" in stream.getvalue()


def _work_long(folder: Path) -> dict[str, Any]:
    """What may take long, by the word that its line begins with."""
    for number in range(3):
        rows = "".join(json.dumps({"x": x}) + "\n" for x in range(50))
        (folder / f"{number}.jsonl").write_text(rows)
    path = folder / "0.jsonl"

    def compact() -> Any:
        return len(bushel.MapDataset.range(50).filter(lambda x: x % 2 == 0).compact())

    def cache() -> Any:
        dataset = bushel.MapDataset.range(50).to_iter_dataset()
        return list(dataset.cache(str(folder / "kept")))

    def write() -> Any:
        return (
            bushel.MapDataset.range(50)
            .map(lambda x: {"x": x})
            .write(f"{folder}/out-*.jsonl", shards=2, workers=0, progress=None)
        )

    return {
        "indexing": lambda: bushel.open(path),
        "looking up records": lambda: bushel.open([folder / "1.jsonl", folder / "2.jsonl"]),
        "compact": compact,
        "filling the cache": cache,
        "bushel.profile": lambda: bushel.profile(bushel.MapDataset.range(50), seconds=0.05),
        "writing": write,
    }


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("off", [False, True])
def test_all_long_work_tells_and_one_variable_switches_it_off(
    off: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSHEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("bushel.write.shard_counts._SECONDS", 0.0)
    if off:
        monkeypatch.setenv("BUSHEL_PROGRESS", "0")
    for word, work in _work_long(tmp_path).items():
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        work()
        assert (word in stream.getvalue()) is not off, word


def test_nothing_and_much_to_do() -> None:
    assert ProgressLine("x", 0).text(1.0) == "x: 100% of 0 B"
    progress = ProgressLine("x", 5_000_000_000_000)
    progress.to(1_000_000_000)
    assert progress.text(2.0) == "x: 0% of 5.0 TB, 500.0 MB/s, 2:46:38 left"


def test_an_error_removes_the_line_too(at_once: None) -> None:
    stream = Terminal()
    with pytest.raises(KeyError), ProgressLine("x", 10, stream=stream) as progress:
        progress.to(5)
        raise KeyError
    assert stream.getvalue().endswith("\r\x1b[K")


@pytest.mark.usefixtures("at_once")
def test_what_was_done_before_does_not_make_it_faster() -> None:
    progress = ProgressLine("converting", 100, unit="records", stream=io.StringIO(), before=50)
    progress.to(50)
    assert progress.text(5.0) == "converting: 50% of 100 records"
    progress.to(60)
    assert progress.text(5.0) == "converting: 60% of 100 records, 2 records/s, 0:20 left"
