"""Checkpoints damaged at every byte, and those of jobs with holes: refused, or the same stream."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import IterDataset, MapDataset, ReadOptions
from bushel.checkpoint import CheckpointHandler, CheckpointRestore, CheckpointSave
from bushel.checkpoint.folders import encode, read_state, write_encoded
from bushel.errors import StateError
from bushel.sharding import ShardOptions
from tests.checkpoint.garbage import garbage_of_orbax

__all__ = ["garbage_of_orbax"]

INLINE = ReadOptions(0, 0)


def _shuffled() -> IterDataset[Any]:
    return MapDataset.range(90).shuffle(seed=3).to_iter_dataset(INLINE).batch(4)


def _mixed() -> IterDataset[Any]:
    parts = {name: MapDataset.range(20).to_iter_dataset(INLINE) for name in ("web", "books")}
    return IterDataset.mix(parts).shuffle(5, seed=1)


def _loaded() -> bushel.DataLoader[Any]:
    sampler = bushel.IndexSampler(40, shuffle=True, num_epochs=1, seed=5)
    return bushel.DataLoader(data_source=range(40), sampler=sampler)


@pytest.mark.parametrize("build", [_shuffled, _mixed, _loaded])
def test_damage_at_every_byte(build: Callable[[], Any], tmp_path: Path) -> None:
    handler = CheckpointHandler()
    with iter(build()) as iterator:
        for _ in range(7):
            next(iterator)
        handler.save(tmp_path, args=CheckpointSave(iterator))
        expected = _told(next(iterator))
    (path,) = tmp_path.iterdir()
    text = path.read_bytes()
    refused = 0
    with iter(build()) as iterator:
        for place, byte in enumerate(text):
            # One bit: another digit, another letter; and now and then a byte that is none.
            for flipped in (byte ^ 1, 0xFF)[: 1 + (place % 8 == 0)]:
                path.write_bytes(text[:place] + bytes([flipped]) + text[place + 1 :])
                try:
                    handler.restore(tmp_path, args=CheckpointRestore(iterator))
                except StateError:
                    refused += 1
                    continue
                assert _told(next(iterator)) == expected, path.read_text()
        for end in range(0, len(text), 5):
            path.write_bytes(text[:end])
            with pytest.raises(StateError):
                handler.restore(tmp_path, args=CheckpointRestore(iterator))
    assert refused > len(text) // 2


def _told(element: Any) -> Any:
    return element.tolist() if hasattr(element, "tolist") else element


def test_what_is_changed_on_purpose_is_taken(tmp_path: Path) -> None:
    with iter(_shuffled()) as iterator:
        next(iterator)
        write_encoded(tmp_path, encode(iterator.get_state()))
        state = json.loads((tmp_path / "process_0-of-1.json").read_text())
        state["next_index"] = 8
        (tmp_path / "process_0-of-1.json").write_text(json.dumps(state))
        with pytest.raises(StateError, match=r'remove "checksum" from its "bushel" entry'):
            read_state(tmp_path)
        del state["bushel"]["checksum"]
        (tmp_path / "process_0-of-1.json").write_text(json.dumps(state))
        iterator.set_state(read_state(tmp_path))
        assert iterator.get_state()["next_index"] == 8


def _on_host(host: int, hosts: int, agree: Callable[[int], int] = lambda number: number) -> Any:
    ds = MapDataset.range(960).lanes(8, shard_options=ShardOptions(host, hosts), agree=agree)
    # (A filter makes each lane a stream with a state of its own.)
    return ds.filter(lambda x: x % 3).batch(16)


def _save_all(folder: Path, steps: int) -> None:
    for host in range(4):
        with iter(_on_host(host, 4)) as iterator:
            for _ in range(steps):
                next(iterator)
            write_encoded(folder, encode(iterator.get_state()), host, 4)


HOLES: dict[str, tuple[Callable[[Path, Path], Any], str]] = {
    "one is missing": (lambda now, _: (now / "process_2-of-4.json").unlink(), "Missing: process_2"),
    "one is there twice": (
        lambda now, _: shutil.copy(now / "process_1-of-4.json", now / "process_2-of-4.json"),
        "lane",
    ),
    "one is of another step": (
        lambda now, later: shutil.copy(later / "process_2-of-4.json", now),
        "different steps",
    ),
    "one is damaged": (
        lambda now, _: (now / "process_2-of-4.json").write_text(
            (now / "process_2-of-4.json").read_text().replace("1", "2", 1)
        ),
        "process_2-of-4.json is damaged",
    ),
    "one is of another job": (
        lambda now, _: (now / "process_2-of-4.json").rename(now / "process_2-of-5.json"),
        "different numbers of processes",
    ),
}


@pytest.mark.parametrize("hole", HOLES)
@pytest.mark.parametrize("hosts", [1, 2])
def test_jobs_with_holes(hole: str, hosts: int, tmp_path: Path) -> None:
    """Restored by another number of hosts, which need the states of all."""
    now, later = tmp_path / "now", tmp_path / "later"
    for folder, steps in ((now, 3), (later, 5)):
        folder.mkdir()
        _save_all(folder, steps)
    with iter(_on_host(0, hosts)) as iterator:
        iterator.set_state(read_state(now, 0, hosts))  # As it should be.
        before = iterator.get_state()
        make, text = HOLES[hole]
        make(now, later)
        with pytest.raises(StateError, match=text):
            iterator.set_state(read_state(now, 0, hosts))
        assert iterator.get_state() == before
