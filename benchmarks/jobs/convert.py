"""The data in each format that is read: `python -m benchmarks.jobs.convert FOLDER NAME...`.

Each format is written once, by its own library, into the folder that a run keeps.
"""

import io
import json
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.jobs import data
from benchmarks.jobs.streaming_import import import_streaming
from benchmarks.jobs.user import WINDOW, Lines, decode_crop_flip, tokenise

SHARDS = 8
# An epoch of litdata's begins with a pause, which one of a real dataset's size makes seldom.
EPOCHS_IN_ONE = 4


def images(folder: Path) -> None:
    data.make_images(folder)
    (folder / "brightness.json").write_text(json.dumps(_mean_brightness(folder)))


def _mean_brightness(folder: Path) -> float:
    """The brightness of random crops from every fourth picture."""
    rng = np.random.default_rng(0)
    files = data.image_files(folder)[::4]
    return float(np.mean([decode_crop_flip(content_of(path), rng).mean() for path, _ in files]))


def brightness(folder: Path) -> float:
    mean: float = json.loads((folder / "brightness.json").read_text())
    return mean


def shards(folder: Path) -> None:
    images = shuffled_images(folder)
    (folder / "shards").mkdir()
    for shard in range(SHARDS):
        with tarfile.open(folder / "shards" / f"images-{shard:03d}.tar", "w") as tar:
            for number, (path, label) in enumerate(images[shard::SHARDS]):
                for ending, content in (("jpg", content_of(path)), ("cls", str(label).encode())):
                    member = tarfile.TarInfo(f"{number:05d}.{ending}")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def array_record(folder: Path) -> None:
    from array_record.python.array_record_module import ArrayRecordWriter

    writer = ArrayRecordWriter(str(folder / "images.array_record"), "group_size:1,uncompressed")
    for path, label in shuffled_images(folder):
        writer.write(bytes([label]) + content_of(path))
    writer.close()


def tfrecord_images(folder: Path) -> None:
    import tensorflow as tf

    def example(path: str, label: int) -> bytes:
        feature = {
            "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[content_of(path)])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        serialised: bytes = tf.train.Example(
            features=tf.train.Features(feature=feature)
        ).SerializeToString()
        return serialised

    images = shuffled_images(folder)
    for shard in range(SHARDS):
        with tf.io.TFRecordWriter(str(folder / f"images-{shard:03d}.tfrecord")) as writer:
            for path, label in images[shard::SHARDS]:
                writer.write(example(path, label))


def huggingface_images(folder: Path) -> None:
    import datasets

    paths, labels = zip(*data.image_files(folder), strict=True)
    rows = {"image": [{"bytes": content_of(p), "path": None} for p in paths], "label": list(labels)}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    dataset = datasets.Dataset.from_dict(rows, features=features)
    dataset.save_to_disk(str(folder / "huggingface_images"))


def one_image(element: tuple[str, int]) -> dict[str, Any]:
    path, label = element
    return {"image": content_of(path), "label": label}


@dataclass(frozen=True)
class Images:
    """Gives litdata many records for each of a few inputs; by paths it would take minutes."""

    folder: Path

    def __call__(self, part: int) -> Iterator[dict[str, Any]]:
        yield from map(one_image, shuffled_images(self.folder))


def litdata_images(folder: Path) -> None:
    import litdata

    litdata.optimize(
        fn=Images(folder),
        inputs=list(range(EPOCHS_IN_ONE)),
        output_dir=str(folder / "litdata_images"),
        chunk_bytes="64MB",
        num_workers=1,
    )


def streaming_images(folder: Path) -> None:
    out = str(folder / "streaming_images")
    with import_streaming().MDSWriter(
        out=out, columns={"image": "bytes", "label": "int"}
    ) as writer:
        for element in shuffled_images(folder):
            writer.write(one_image(element))


def shuffled_images(folder: Path) -> list[tuple[str, int]]:
    """Gives the pictures in the order in which shards should have them."""
    images = data.image_files(folder)
    return [images[key] for key in np.random.default_rng(0).permutation(len(images))]


def content_of(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def text(folder: Path) -> None:
    """Writes the corpora, and what all their documents are in tokens, to check batches by."""
    data.make_text(folder)
    for corpus in data.CORPORA:
        path = folder / f"{corpus}.jsonl"
        with ProcessPoolExecutor(2) as pool:
            known = list(pool.map(document_hashes, [path] * SHARDS, range(SHARDS)))
        np.save(folder / f"{corpus}.hashes.npy", np.concatenate(known))


def document_hashes(path: Path, part: int) -> NDArray[np.int64]:
    lines = Lines(path)
    numbers = range(part, len(lines), SHARDS)
    hashes = [document_hash(tokenise(str(path.parent), lines[number])) for number in numbers]
    return np.array(hashes, np.int64)


def document_hash(tokens: Any) -> int:
    return zlib.crc32(np.asarray(tokens, np.int32).tobytes())


@dataclass(frozen=True)
class Documents:
    path: Path

    def __call__(self, part: int) -> Iterator[dict[str, str]]:
        lines = Lines(self.path)
        for number in range(part, len(lines), SHARDS):
            yield {"text": lines[number]}


def litdata_text(folder: Path) -> None:
    import litdata

    for corpus in data.CORPORA:
        litdata.optimize(
            fn=Documents(folder / f"{corpus}.jsonl"),
            inputs=list(range(SHARDS)),
            output_dir=str(folder / f"litdata_{corpus}"),
            chunk_bytes="4MB",
            num_workers=1,
        )


def streaming_text(folder: Path) -> None:
    module = import_streaming()
    for corpus in data.CORPORA:
        lines = Lines(folder / f"{corpus}.jsonl")
        out = str(folder / f"streaming_{corpus}")
        with module.MDSWriter(out=out, columns={"text": "str"}, size_limit=4 << 20) as writer:
            for number in range(len(lines)):
                writer.write({"text": lines[number]})


def webdataset_text(folder: Path) -> None:
    for corpus in data.CORPORA:
        lines = Lines(folder / f"{corpus}.jsonl")
        for shard in range(SHARDS):
            with tarfile.open(folder / f"{corpus}-{shard:03d}.tar", "w") as tar:
                for number in range(shard, len(lines), SHARDS):
                    content = lines[number].encode()
                    member = tarfile.TarInfo(f"{number:06d}.txt")
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))


def tokens(folder: Path) -> None:
    data.make_tokens(folder)


@dataclass(frozen=True)
class Stretches:
    path: Path

    def __call__(self, part: int) -> Iterator[Any]:
        import torch

        tokens = np.fromfile(self.path, np.uint16)
        for stretch in np.array_split(np.array_split(tokens, SHARDS)[part], 8):
            yield torch.from_numpy(stretch)


def litdata_tokens(folder: Path) -> None:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    litdata.optimize(
        fn=Stretches(folder / "tokens.bin"),
        inputs=list(range(SHARDS)),
        output_dir=str(folder / "litdata_tokens"),
        chunk_size=WINDOW * 4096,
        item_loader=TokensLoader(block_size=WINDOW),
        num_workers=1,
    )


FORMATS: dict[str, Callable[[Path], None]] = {
    function.__name__: function
    for function in (
        images,
        shards,
        array_record,
        tfrecord_images,
        huggingface_images,
        litdata_images,
        streaming_images,
        text,
        litdata_text,
        streaming_text,
        webdataset_text,
        tokens,
        litdata_tokens,
    )
}


if __name__ == "__main__":
    FORMATS[sys.argv[2]](Path(sys.argv[1]))
