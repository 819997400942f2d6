"""The tutorials run to their end; what they promise, they assert themselves."""

from pathlib import Path

import pytest

from tests.thorough import THOROUGH
from tools import notebooks

TUTORIALS = sorted(notebooks.FOLDER.glob("*.ipynb"))
NEEDS = {
    "fine-tuning": ["datasets", "torch"],
    "images": ["sklearn", "PIL"],
    "tabular": ["sklearn"],
}
# For what they import, and for the processes that they start.
SLOW = {"fine-tuning", "laptop-to-cluster"}


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if path.stem in SLOW and not THOROUGH:
        pytest.skip("takes long; `make test-all` runs it")
    for package in NEEDS.get(path.stem, []):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    kept = notebooks.read(path)
    done = notebooks.run(kept, path.stem)
    sources = ["".join(cell["source"]) for cell in kept["cells"]]
    assert any("assert " in source for source in sources), "nothing would fail in it"
    assert [cell.get("execution_count") for cell in kept["cells"]] == [
        cell.get("execution_count") for cell in done["cells"]
    ], "python -m tools.notebooks keeps the outputs of a run"
    shows = [bool(cell.get("outputs")) for cell in done["cells"]]
    assert [bool(cell.get("outputs")) for cell in kept["cells"]] == shows
    assert not list(tmp_path.iterdir()), "it leaves files behind"


def test_a_cell_that_raises_ends_the_run() -> None:
    cell = {"cell_type": "code", "source": ["assert 1 > 2, 'smaller'"]}
    with pytest.raises(AssertionError, match="smaller"):
        notebooks.run({"cells": [cell]}, "bad")


def test_what_is_kept_of_a_cell() -> None:
    cell = {"cell_type": "code", "source": ["print('seen')\n", "6 * 7"]}
    (done,) = notebooks.run({"cells": [cell]}, "good")["cells"]
    stream, value = done["outputs"]
    assert stream["text"] == ["seen\n"]
    assert value["data"] == {"text/plain": ["42"]} and value["execution_count"] == 1
