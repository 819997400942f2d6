"""Figures in a named file: read while the program runs, and after it was killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset
from bushel.cli.main import main
from bushel.errors import FileError, PlanError
from bushel.watch.live_processes import process_of_file

TRAINING = """
import sys, bushel
from bushel import MapDataset
iterator = bushel.iterate(MapDataset.range(100).repeat().batch(2), stats=sys.argv[1])
for _ in range(50):
    next(iterator)
iterator._publish()
print("running", flush=True)
sys.stdin.read()
"""


def published(path: Path) -> Any:
    (iterator,) = process_of_file(str(path)).iterators
    return iterator


def test_a_file_that_outlives_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.stats"
    command = [sys.executable, "-c", TRAINING, str(path)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"running\n"
        running = published(path)
        assert not running.has_ended
        assert running.published.pid == program.pid
        with pytest.raises(FileError, match="another iterator"):
            bushel.iterate(MapDataset.range(3), stats=path)
        program.send_signal(signal.SIGKILL)
        program.wait()
    killed = published(path)
    assert killed.has_ended
    assert killed.published.stats.elements == running.published.stats.elements == 50
    assert main(["top", str(path), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["iterators"][0]["has_ended"]
    assert main(["top", str(path)]) == 0
    assert "the iterator is gone" in capsys.readouterr().out


def test_an_iterator_that_is_closed_leaves_its_last_figures(tmp_path: Path) -> None:
    path = tmp_path / "run.stats"
    with bushel.iterate(MapDataset.range(30).batch(10), stats=path) as iterator:
        for _ in iterator:
            break
        assert path.stat().st_mode & 0o777 == 0o600
    assert published(path).published.stats.elements == 1
    with bushel.iterate(MapDataset.range(30).batch(10), stats=path) as iterator:
        assert len(list(iterator)) == 3
    assert published(path).published.is_over


def test_files_that_are_not_taken(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("years of work")
    with pytest.raises(FileError, match="no file of statistics"):
        bushel.iterate(MapDataset.range(3), stats=thesis)
    assert thesis.read_text() == "years of work"
    os.symlink(thesis, tmp_path / "link")
    for path in ("link", "nowhere/run.stats", "."):
        with pytest.raises(FileError, match="cannot be written to"):
            bushel.iterate(MapDataset.range(3), stats=tmp_path / path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError):
        bushel.iterate(MapDataset.range(3), stats=tmp_path / "pipe")
    with pytest.raises(PlanError, match="empty"):
        bushel.iterate(MapDataset.range(3), stats="")


@pytest.mark.parametrize("content", [b"", b"bushel/1", bytes(1 << 20), b"x" * (1 << 20)])
def test_files_without_figures(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.stats"
    path.write_bytes(content)
    assert main(["top", str(path)]) == 1
    assert "has no figures" in capsys.readouterr().err
    assert main(["top", str(tmp_path / "missing.stats")]) == 1
    assert "missing.stats" in capsys.readouterr().err


def test_loaders_have_one_too(tmp_path: Path) -> None:
    source = bushel.RangeDataSource(0, 8, 1)
    loader = bushel.DataLoader(
        data_source=source, sampler=bushel.SequentialSampler(8, bushel.NoSharding())
    )
    with bushel.iterate(loader, stats=tmp_path / "loader.stats") as iterator:
        assert len(list(iterator)) == 8
    assert published(tmp_path / "loader.stats").published.stats.elements == 8
