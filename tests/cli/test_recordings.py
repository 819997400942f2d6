"""`bushel replay`, `diff` and `why-slow`, of recorded runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bushel
from bushel.cli.main import main

PIPELINE = """
import bushel

def make(seed=1):
    return bushel.MapDataset.range(400).shuffle(seed=seed).batch(4)

def other():
    return make(2)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PIPELINE)
    made: dict[str, object] = {}
    exec(PIPELINE, made)
    for name in ("make", "other"):
        with bushel.iterate(made[name](), record=tmp_path / name, every=10) as iterator:  # type: ignore[operator]
            for _ in iterator:
                pass
    return tmp_path


def make_dataset() -> bushel.MapDataset[Any]:
    return bushel.MapDataset.range(400).shuffle(seed=1).batch(4)


def test_replay(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["replay", f"{folder}/make", "--pipeline", f"{folder}/train.py:make", "--step"]
    assert main([*ask, "23", "--save", f"{folder}/batch.npz"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "step 23, made from the state before step 20"
    assert lines[2].startswith("checksum of step 20 equal (")
    assert lines[3] == "no checksum of step 23 was recorded"
    assert lines[4] == f"saved to {folder}/batch.npz: element"
    wanted = make_dataset()[23]
    with np.load(folder / "batch.npz") as saved:
        np.testing.assert_array_equal(saved["element"], wanted)
    assert main([*ask, "30"]) == 0
    assert "checksum of step 30 equal" in capsys.readouterr().out
    with bushel.iterate(make_dataset(), record=folder / "short", every=10) as iterator:
        next(iterator)
    ask[1] = f"{folder}/short"
    assert main([*ask, "3"]) == 0
    told = capsys.readouterr().out.splitlines()[1]
    assert told.startswith("the run ended before step 1: step 3 was not part of it; this is what")
    ask[1] = f"{folder}/make"
    for step, words in (("-1", "cannot be -1"), ("100", "there is no step 100")):
        assert main([*ask, step]) == 1
        assert words in capsys.readouterr().err


def test_replay_of_another_pipeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["replay", f"{folder}/make", "--pipeline", f"{folder}/train.py:other", "--step", "3"]
    assert main(ask) == 1
    found = capsys.readouterr().err
    assert "another pipeline: step 2 was `shuffle(seed=1)` and is `shuffle(seed=2)` now" in found


def test_replay_says_what_differs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "make"
    path.write_text(path.read_text().replace('"crc":"', '"crc":"f'))
    ask = ["replay", str(path), "--pipeline", f"{folder}/train.py:make", "--step", "10"]
    assert main(ask) == 1
    shown = capsys.readouterr()
    assert "checksum of step 10 differs: it was f" in shown.out
    assert "this is not what was handed out" in shown.err and "numpy" in shown.err


def test_diff(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", f"{folder}/make", f"{folder}/make"]) == 0
    found = capsys.readouterr().out
    assert "10 steps recorded in both, from 0 to 90" in found
    assert "states and checksums are equal at all of them" in found
    assert "up to 90" in found
    assert main(["diff", f"{folder}/make", f"{folder}/other"]) == 0
    found = capsys.readouterr().out
    assert "pipelines differ: step 2 was `shuffle(seed=1)` and is `shuffle(seed=2)` now" in found
    assert "they differ from step 0 on: the states are equal, and the bytes are not" in found


def test_diff_finds_the_first_step(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (folder / "make").read_text().splitlines()
    changed = [
        json.dumps({**json.loads(line), "state": {"next_index": 41}, "crc": "0"})
        if line.startswith('{"step":40,"state"')
        else line
        for line in lines
    ]
    (folder / "changed").write_text("\n".join(changed) + "\n")
    assert main(["diff", f"{folder}/make", f"{folder}/changed", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["first_difference"] == 40 and found["pipelines"] == ""
    assert found["what"].startswith("other states, and other bytes")
    assert main(["diff", f"{folder}/changed", f"{folder}/make"]) == 0
    assert "(they were equal at step 30, the last one before)" in capsys.readouterr().out


def test_why_slow(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "make"
    lines = path.read_text().splitlines()
    slow = {"step": 7, "event": "workers died", "pool": 0, "deaths": 2, "repeated_tasks": 3}
    path.write_text("\n".join([*lines[:3], "oops", *lines[3:], json.dumps(slow)]) + '\n{"st')
    assert main(["why-slow", str(path)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("your loop waited ")
    assert "why slow: too few elements so far to say why." in shown.out
    assert "step 7: workers died (deaths 2, repeated tasks 3)" in shown.out
    assert f"line 4 of {path} is damaged and passed over: it is no JSON" in shown.err
    assert f"{path} was cut within its last line" in shown.err
    path.write_text(lines[0] + "\n")
    assert main(["why-slow", str(path)]) == 1
    assert "nothing was handed out" in capsys.readouterr().err


def test_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ask = ["where", "--pipeline", f"{folder}/train.py:make", "--step", "23"]
    assert main(ask) == 0
    wanted = capsys.readouterr().out
    assert main([*ask, f"{folder}/make"]) == 0
    assert capsys.readouterr().out == wanted
    assert main([*ask, f"{folder}/other"]) == 1
    assert "another pipeline" in capsys.readouterr().err
    assert main([*ask, f"{folder}/make", "--state", f"{folder}/train.py"]) == 1


def test_where_says_what_the_run_did_not_make(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with bushel.iterate(make_dataset(), record=folder / "short", every=10) as iterator:
        next(iterator)
    ask = ["where", f"{folder}/short", "--pipeline", f"{folder}/train.py:make", "--step"]
    assert main([*ask, "0"]) == 0
    assert "not part of it" not in capsys.readouterr().out
    assert main([*ask, "3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == (
        "  (the run ended before step 1: step 3 was not part of it)"
    )


def test_when(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dataset = bushel.MapDataset.range(400).shuffle(seed=1).batch(4)
    with bushel.iterate(dataset, record=folder / "half", every=10) as iterator:
        for _ in range(50):
            next(iterator)
    keys = {
        half: int(bushel.where(dataset, step=step).keys[2]) for half, step in enumerate((7, 80))
    }
    ask = ["when", f"{folder}/half", "--pipeline", f"{folder}/train.py:make", "--key"]
    assert main([*ask, str(keys[0])]) == 0
    assert "epoch 0: step 7, row 2" in capsys.readouterr().out
    assert main([*ask, str(keys[1])]) == 0
    assert "at no step of 50" in capsys.readouterr().out
    assert main([*ask, str(keys[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["seen"] == [{"epoch": 0, "step": 7, "row": 2}]
    assert main([*ask, "1", "--steps", "3"]) == 1
    assert "a recording, which says the steps" in capsys.readouterr().err
    ask[3] = f"{folder}/train.py:other"
    assert main([*ask, "1"]) == 1
    assert "another pipeline" in capsys.readouterr().err


def test_when_of_a_run_that_left_out_steps(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dataset = bushel.MapDataset.range(400).shuffle(seed=1).batch(4)
    later = iter(dataset.to_iter_dataset())
    for _ in range(60):
        next(later)
    with bushel.iterate(dataset, record=folder / "jump", every=10) as iterator:
        for _ in range(10):
            next(iterator)
        iterator.set_state(later.get_state())
        for _ in range(10):
            next(iterator)
    ask = ["when", f"{folder}/jump", "--pipeline", f"{folder}/train.py:make", "--key"]
    for step, was_made in (
        (9, True),
        (10, False),
        (59, False),
        (60, True),
        (69, True),
        (70, False),
    ):
        assert main([*ask, str(int(bushel.where(dataset, step=step).keys[0]))]) == 0
        assert (f"step {step}, row 0" in capsys.readouterr().out) is was_made
