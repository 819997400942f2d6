"""Pages on which workers of a cluster note what they are at, and which of them are removed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bushel.workers.cluster.pages import new_page, read_page


@pytest.fixture(autouse=True)
def no_proc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder of our own; and, as on macOS, nothing in /proc."""
    exists = os.path.exists
    monkeypatch.setattr("os.path.exists", lambda path: "/proc" not in str(path) and exists(path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def _old(page: Path) -> Path:
    page.touch()
    os.utime(page, (0, 0))
    return page


def test_old_pages_are_removed_unless_their_process_lives() -> None:
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    page, _ = new_page()
    folder = Path(page).parent
    gone = [_old(folder / f"{name}-a.notes") for name in (ended.pid, "nobody", 10**30)]
    kept = [_old(Path(page)), _old(folder / f"{os.getppid()}-a.notes")]
    young = folder / f"{ended.pid}-b.notes"
    young.touch()
    new, _ = new_page()
    assert set(folder.iterdir()) == {*kept, young, Path(new)}
    assert not any(one.exists() for one in gone)
    read_page(new)
    assert not Path(new).exists()
