"""Data sources of TFDS: read as they are, by the block, without TensorFlow."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest

import bushel
from bushel.sources.array_record import ArrayRecordDataSource
from tests.grain.oracle import assert_same
from tests.later import later
from tests.thorough import slow

tfds = later("tensorflow_datasets")

RECORDS = 120
SHARDS = 3


# In a process of its own: TFDS wants to know in which file a dataset is defined, and does not
# find its way among those of pytest.
_BUILD = """
import sys
import numpy as np
import tensorflow_datasets as tfds
from sklearn.datasets import load_digits

class Digits(tfds.core.GeneratorBasedBuilder):
    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Tensor(shape=(8, 8), dtype=np.uint8),
            "label": tfds.features.ClassLabel(num_classes=10),
            "name": tfds.features.Text(),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        digits = load_digits()
        for number in range(int(sys.argv[2])):
            image, label = digits.images[number].astype(np.uint8), int(digits.target[number])
            yield number, {"image": image, "label": label, "name": f"digit {number}"}

tfds.disable_progress_bar()
config = tfds.download.DownloadConfig(num_shards=int(sys.argv[3]))
Digits(data_dir=sys.argv[1], file_format="array_record").download_and_prepare(
    download_config=config
)
"""


def run(program: str, *arguments: str) -> None:
    """Runs a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where TFDS keeps its datasets, with one in it, in several ArrayRecord files."""
    folder = tmp_path_factory.mktemp("tfds")
    run(_BUILD, str(folder), str(RECORDS), str(SHARDS))
    return folder


def source(folder: Path, split: str = "train", **options: Any) -> Any:
    """Opens the dataset as a program does that only knows its name."""
    return tfds.data_source("digits", split=split, data_dir=folder, **options)


def bright(element: Any) -> Any:
    return {**element, "mean": element["image"].mean()}


def dataset(lib: Any, records: Any) -> Any:
    return lib.MapDataset.source(records).shuffle(seed=7).map(bright).batch(16)


def loader(lib: Any, records: Any, worker_count: int = 0) -> Any:
    return lib.DataLoader(
        data_source=records,
        sampler=lib.samplers.IndexSampler(
            num_records=len(records),
            shard_options=lib.sharding.NoSharding(),
            shuffle=True,
            num_epochs=2,
            seed=3,
        ),
        operations=[lib.transforms.Batch(16)],
        worker_count=worker_count,
    )


def test_the_files_are_what_they_should_be(folder: Path) -> None:
    files = sorted(path.name for path in folder.rglob("*array_record*"))
    assert files == [f"digits-train.array_record-{shard:05}-of-00003" for shard in range(SHARDS)]
    assert len(source(folder)) == RECORDS


@pytest.mark.parametrize(
    ("split", "worker_count"),
    [
        ("train", 0),
        pytest.param("train", 2, marks=slow),
        ("train[10%:55%]", 0),
        ("train[10%:55%]", 2),
    ],
)
def test_datasets_and_loaders(folder: Path, split: str, worker_count: int) -> None:
    theirs, ours = source(folder, split), source(folder, split)
    stream = dataset(bushel, ours).to_iter_dataset()
    if worker_count:
        stream = stream.mp_prefetch(bushel.MultiprocessingOptions(num_workers=worker_count))
    assert_same(list(dataset(grain, theirs)), list(stream))
    assert_same(list(loader(grain, theirs)), list(loader(bushel, ours, worker_count)))


def test_features_that_are_not_decoded(folder: Path) -> None:
    decoders = {"image": tfds.decode.SkipDecoding()}
    theirs, ours = (source(folder, decoders=decoders) for _ in range(2))
    expected = list(grain.MapDataset.source(theirs))
    assert expected[0]["name"] == source(folder)[0]["name"]
    assert_same(expected, list(bushel.MapDataset.source(ours)))


def test_blocks_are_read_in_one_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = source(folder)
    expected = [records[key] for key in range(RECORDS)]
    read_many = type(records).__getitems__
    calls = []

    def counted(self: Any, keys: Sequence[int]) -> Any:
        calls.append(len(keys))
        return read_many(self, keys)

    def refused(self: Any, key: int) -> Any:
        raise AssertionError("asked one by one")

    monkeypatch.setattr(type(records), "__getitems__", counted)
    monkeypatch.setattr(type(records), "__getitem__", refused)
    first: Any = bushel.MapDataset.source(records).batch(50)[0]
    assert first["image"].shape == (50, 8, 8)
    assert calls == [50]
    assert_same(expected, list(bushel.MapDataset.source(records)))


def test_states(folder: Path) -> None:
    """A state belongs to the dataset and not to the object: another one goes on from it."""
    expected = list(loader(bushel, source(folder)))
    iterator = iter(loader(bushel, source(folder)))
    for _ in range(4):
        next(iterator)
    state = iterator.get_state()
    for worker_count in (0, 2):
        restored = iter(loader(bushel, source(folder), worker_count))
        restored.set_state(state)
        assert_same(expected[4:], list(restored))
    with pytest.raises(ValueError, match=r"train\[60:\]\+train\[:60\]"):
        iter(loader(bushel, source(folder, "train[60:]+train[:60]"))).set_state(state)


def test_a_state_that_grain_saved(folder: Path) -> None:
    theirs = iter(loader(grain, source(folder)))
    for _ in range(4):
        next(theirs)
    ours = iter(loader(bushel, source(folder)))
    ours.set_state(theirs.get_state())
    assert_same(list(theirs), list(ours))


def test_the_bytes_by_instructions(folder: Path) -> None:
    """The records as they are stored, from the parts of files that a split consists of."""
    splits = tfds.builder("digits", data_dir=folder).info.splits
    for split in ("train", "train[30%:70%]"):
        instructions = splits[split].file_instructions
        ours = ArrayRecordDataSource(instructions)
        theirs = grain.sources.ArrayRecordDataSource(instructions)
        assert (repr(ours), ours.paths) == (repr(theirs), theirs.paths)
        assert len(ours) == splits[split].num_examples
        keys = np.random.default_rng(0).permutation(len(ours)).tolist()
        assert_same(theirs.__getitems__(keys), ours.__getitems__(keys))


_WITHOUT_TENSORFLOW = """
import sys
import tensorflow_datasets as tfds
import bushel

def look(element):
    return {**element, "tensorflow": "tensorflow" in sys.modules}

source = tfds.data_source("digits", split="train", data_dir=sys.argv[1])
stream = bushel.MapDataset.source(source).shuffle(seed=1).map(look).batch(16).to_iter_dataset()
options = bushel.MultiprocessingOptions(num_workers=1)
for batches in (list(stream), list(stream.mp_prefetch(options))):
    assert sum(len(batch["image"]) for batch in batches) == 120
    assert not any(batch["tensorflow"].any() for batch in batches)
assert "tensorflow" not in sys.modules
"""


def test_tensorflow_is_not_imported(folder: Path) -> None:
    run(_WITHOUT_TENSORFLOW, str(folder))
