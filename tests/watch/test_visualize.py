"""The setting that shows pipelines: in the log or in a folder, after the first element."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, transforms
from bushel.deliver.iterator import StreamIterator
from tests.contract.events import run_events
from tests.contract.parts import double, is_not_third, ragged
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.thorough import THOROUGH
from tests.watch.pipelines import Own, records, stream
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]

_SETTING = "py_dataset_visualization_output_dir"
_ID, _PAIR = "'id': 'int64'", "'pair': 'float32[2]'"


@pytest.fixture(autouse=True)
def setting() -> Iterator[None]:
    yield
    bushel.config.update(_SETTING, None)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "bushel")
    bushel.config.update(_SETTING, "")
    return caplog


def _notes(text: str) -> list[str]:
    return [line.split("makes ", 1)[-1] for line in text.split("\n") if "makes " in line]


def test_after_the_first_element_once(told: pytest.LogCaptureFixture) -> None:
    ds = records().map(double).to_iter_dataset().filter(is_not_third).batch(4)
    iterator = iter(ds)
    assert told.text == ""
    first = next(iterator)
    assert told.text.count("the pipeline of an iterator, after its first element") == 1
    row = f"{{{_ID}, {_PAIR}}}"
    batch = "{'id': 'int64[4]', 'pair': 'float32[4, 2]'}"
    assert _notes(told.text) == [batch, row, row, row, row]
    assert type(iterator) is StreamIterator
    assert first["id"].tolist() == [2, 4, 8, 10]
    assert next(iterator)["id"].tolist() == [14, 16, 20, 22]
    assert told.text.count("after its first element") == 1


def test_levels(caplog: pytest.LogCaptureFixture) -> None:
    """It was asked for, and so it is seen where information is not."""
    bushel.config.update(_SETTING, "")
    caplog.set_level(logging.WARNING, "bushel")
    next(iter(stream()))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_into_a_folder(tmp_path: Path) -> None:
    bushel.config.update(_SETTING, tmp_path / "seen")
    next(iter(stream().map(ragged)))
    next(iter(bushel.load([1, 2, 3], batch_size=2)))
    paths = sorted((tmp_path / "seen").iterdir(), key=lambda path: (path.suffix, _number(path)))
    assert [path.suffix for path in paths] == [".html", ".html", ".txt", ".txt"]
    texts = [path.read_text() for path in paths]
    assert texts[0].startswith("<!doctype html>")
    assert "makes {'id': 'int64[1]'" in texts[2]
    assert "makes int64[2]" in texts[3]


def _number(path: Path) -> int:
    return int(path.stem.rsplit("-", 1)[-1])


def test_a_folder_that_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    bushel.config.update(_SETTING, tmp_path / "file")
    assert next(iter(MapDataset.range(3))) == 0
    assert "cannot be shown" in caplog.text


def test_values() -> None:
    with pytest.raises(TypeError, match="is a folder, or '' for the log"):
        bushel.config.update(_SETTING, 3)
    bushel.config.update(_SETTING, "there")
    assert bushel.config.py_dataset_visualization_output_dir == "there"


def test_with_workers(told: pytest.LogCaptureFixture) -> None:
    ds = stream().map(double).batch(2).mp_prefetch(MultiprocessingOptions(num_workers=1))
    with iter(ds) as iterator:
        next(iterator)
    row = f"{{{_ID}, {_PAIR}}}"
    batch = "{'id': 'int64[2]', 'pair': 'float32[2, 2]'}"
    assert _notes(told.text) == [batch, batch, row, row, row]


def test_steps_that_do_not_run_again(told: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    cached = stream().map(double).cache(tmp_path / "cache").map(double)
    ends = [cached, Own(stream()).map(double)]
    ends += [stream().on_error("skip", quarantine=tmp_path / "bad").map(double)]
    ends += [IterDataset.mix([stream(), stream()]).map(double)]
    ends += [records().lanes(2).filter(is_not_third).batch(2).map(double)]
    counts = []
    for ds in ends:
        told.clear()
        next(iter(ds))
        counts.append(len(_notes(told.text)))
    assert counts == [4, 3, 3, 1, 1]


class _Counting(transforms.Map):
    def __init__(self) -> None:
        self.calls = 0

    def map(self, element: Any) -> Any:
        self.calls += 1
        return element


def test_each_function_runs_once_more(told: pytest.LogCaptureFixture) -> None:
    counting = _Counting()
    steps = MapDataset.range(1).map(counting)
    for _ in range(5):
        steps = steps.map(abs)
    assert list(steps) == [0]
    assert counting.calls == 2


@pytest.mark.parametrize("name", [name for name in PIPELINES if THOROUGH or ":" not in name])
def test_it_never_shows(name: str, told: pytest.LogCaptureFixture) -> None:
    """Elements, errors and states are the same."""
    ds = stream_of(name, Kit())
    shown = run_events(ds)
    assert told.text == "" if not shown else "cannot be shown" not in told.text
    bushel.config.update(_SETTING, None)
    assert run_events(ds) == shown
