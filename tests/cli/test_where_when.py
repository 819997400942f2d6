"""`bushel where` and `bushel when`, of a pipeline in a file."""

import json
from pathlib import Path

import pytest

from bushel.cli.main import main

PIPELINE = """
import bushel

def odd():
    return bushel.MapDataset.range(100).to_iter_dataset().filter(lambda x: x % 2)

def make():
    return bushel.MapDataset.range(100).shuffle(seed=1).batch(4)

ready = make()

def needs(path):
    return ready
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(PIPELINE)
    return str(path)


def test_where_and_when(pipeline: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["where", "--pipeline", f"{pipeline}:make", "--step", "3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["grade"] == "exact, by arithmetic"
    key = answer["records"][2]["key"]
    assert main(["when", "--pipeline", f"{pipeline}:ready", "--key", str(key)]) == 0
    assert "epoch 0: step 3, row 2" in capsys.readouterr().out
    assert main(["where", "--pipeline", f"{pipeline}:make", "--step", "3:5"]) == 0
    shown = capsys.readouterr().out
    assert "step 3 = epoch 0, positions 12..15 of its order" in shown and "step 4 = " in shown
    assert main(["when", "--pipeline", f"{pipeline}:odd", "--key", "7"]) == 0
    assert "(`--replay` runs the pipeline to find out)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["where", "--pipeline", "{}:make", "--step", "25"], "there is no step 25"),
        (["where", "--pipeline", "{}:make", "--step", "x"], "--step takes a number"),
        (["where", "--pipeline", "{}:other", "--step", "0"], "has no 'other'"),
        (["where", "--pipeline", "{}", "--step", "0"], "named as FILE.py:NAME"),
        (["where", "--pipeline", "none.py:make", "--step", "0"], "there is none"),
        (["when", "--pipeline", "{}:make", "--key", "100"], "there is no key 100"),
        (["where", "--pipeline", "{}:needs", "--step", "0"], "missing a required argument: 'path'"),
    ],
)
def test_mistakes(
    arguments: list[str], words: str, pipeline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [part.format(pipeline.replace(":", "")) for part in arguments]
    assert main(given) == 1
    assert words in capsys.readouterr().err
