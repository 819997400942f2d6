"""`bushel profile` and `bushel simulate` on a pipeline in a file."""

import json
import sys
from pathlib import Path

import pytest

from bushel.cli.main import main
from bushel.watch.profiled import Profile
from bushel.watch.simulate import Simulation

_PIPELINE = """
import bushel

def make():
    return bushel.MapDataset.range(1000).map(abs).batch(10)
"""


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.path", list(sys.path))
    path = tmp_path / "train.py"
    path.write_text(_PIPELINE)
    return f"{path}:make"


def test_profile(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["profile", "--pipeline", pipeline, "--seconds", "0.05", "--no-verify"]
    assert main([*asked, "--step-seconds", "0.1"]) == 0
    told = capsys.readouterr().out
    assert "map(abs)" in told
    assert "to feed a step of 100 ms (10/s): no workers." in told
    assert main([*asked, "--json"]) == 0
    assert Profile.from_dict(json.loads(capsys.readouterr().out)).what == "MapDataset"


def test_what_is_in_the_file_is_verified_in_workers(
    pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(pipeline.removesuffix(":make"))
    path.with_name("beside.py").write_text("def more(number):\n    return number + 1\n")
    own = "from beside import more\n\ndef larger(number):\n    return more(number)\n"
    path.write_text(own + _PIPELINE.replace("map(abs)", "map(larger).map(more)"))
    assert main(["profile", "--pipeline", pipeline, "--seconds", "0.2"]) == 0
    told = capsys.readouterr().out
    assert "map(larger)" in told and "verified" in told


def test_simulate(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["simulate", "--pipeline", pipeline, "--seconds", "0.05", "--hosts", "4"]
    assert main([*asked, "--workers", "2", "--step-seconds", "0.1"]) == 0
    assert "4 hosts, 2 workers each" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    assert Simulation.from_dict(json.loads(capsys.readouterr().out)).hosts == 4


def test_wrong_questions(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--pipeline", pipeline, "--step-seconds", "0"]) == 1
    assert "step_seconds is how long" in capsys.readouterr().err
    assert main(["simulate", "--pipeline", pipeline, "--hosts", "0"]) == 1
    assert "hosts is how many train together" in capsys.readouterr().err
