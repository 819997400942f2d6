"""The line that tells how far long work has come."""

import io

import pytest

from bushel.files import progress_line as module
from bushel.files.progress_line import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_QUIET_SECONDS", "_EVERY_SECONDS", "_EVERY_SECONDS_IN_A_LOG"):
        monkeypatch.setattr(module, name, 0.0)


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


@pytest.mark.usefixtures("at_once")
def test_a_log_has_lines() -> None:
    stream = io.StringIO()
    with ProgressLine("indexing", 10, unit="records", stream=stream) as progress:
        progress.to(5)
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("indexing: 50% of 10 records, ")


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
