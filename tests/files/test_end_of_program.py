"""What is open when a program ends is let go of without a word.

Python empties modules then, and objects that something still refers to are let go of afterwards.
"""

from pathlib import Path

import pytest

from bushel.files import local
from bushel.files.local import LocalFile


def test_a_file_is_let_go_of_without_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").write_bytes(b"abc")
    file = LocalFile(str(tmp_path / "data"))
    with monkeypatch.context() as patch:
        patch.setattr(local, "os", None)
        file.__del__()
    assert file.read(0, 2) == b"ab"  # Nobody has closed it: the system does.
    file.__del__()
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(0, 2)
