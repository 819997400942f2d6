"""The image job in the libraries beside bushel and Grain, as their documentation recommends."""

import random
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jobs import data
from benchmarks.jobs.job import for_ever
from benchmarks.jobs.streaming_import import import_streaming
from benchmarks.jobs.user import IMAGE_BATCH, SIDE, decode_crop_flip

WORKERS = 2
MANY = 10**7  # as good as for ever, where a length is needed


def generator() -> np.random.Generator:
    """A generator of the process, seeded as these libraries seed their workers."""
    global _generator
    if _generator is None:
        _generator = np.random.default_rng(random.getrandbits(64))
    return _generator


_generator: np.random.Generator | None = None


class Files:
    """A dataset for torch."""

    def __init__(self, files: list[tuple[str, int]]) -> None:
        self._files = files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, key: int) -> Any:
        path, label = self._files[key]
        with open(path, "rb") as file:
            image = decode_crop_flip(file.read(), generator())
        return {"image": np.ascontiguousarray(image), "label": label}


def torch_loader(dataset: Any) -> Iterable[Any]:
    """Draws permutation after permutation, without the pause between two epochs."""
    from torch.utils.data import DataLoader, RandomSampler

    loader: Iterable[Any] = DataLoader(
        dataset,
        batch_size=IMAGE_BATCH,
        sampler=RandomSampler(dataset, num_samples=MANY),
        num_workers=WORKERS,
        drop_last=True,
    )
    return loader


def torch_folders(folder: Path) -> Iterable[Any]:
    return torch_loader(Files(data.image_files(folder)))


def huggingface(folder: Path) -> Iterable[Any]:
    import datasets

    def transform(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        images = [decode_crop_flip(row["bytes"], generator()) for row in rows["image"]]
        return {
            "image": [np.ascontiguousarray(image) for image in images],
            "label": rows["label"],
        }

    dataset = datasets.load_from_disk(str(folder / "huggingface_images"))
    dataset = dataset.cast_column("image", datasets.Image(decode=False))
    return torch_loader(dataset.with_transform(transform))


def tf_folders(folder: Path, fused: bool = False) -> Iterator[Any]:
    import tensorflow as tf

    paths, labels = zip(*data.image_files(folder), strict=True)
    files = tf.data.Dataset.from_tensor_slices((list(paths), np.array(labels)))
    files = files.shuffle(len(paths)).repeat()
    return tf_batches(files, lambda path, label: (tf.io.read_file(path), label), fused)


def tf_folders_fused(folder: Path) -> Iterator[Any]:
    return tf_folders(folder, fused=True)


def tf_records(folder: Path) -> Iterator[Any]:
    import tensorflow as tf

    features = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "label": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: Any) -> Any:
        example = tf.io.parse_single_example(record, features)
        return example["image"], example["label"]

    paths = sorted(str(path) for path in folder.glob("images-*.tfrecord"))
    files = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).repeat()
    records = files.interleave(
        tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE
    )
    return tf_batches(records.shuffle(512), parse, fused=True)


def tf_batches(elements: Any, read: Any, fused: bool) -> Iterator[Any]:
    import tensorflow as tf

    def crop(jpeg: Any) -> Any:
        if not fused:
            return tf.image.random_crop(tf.image.decode_jpeg(jpeg, channels=3), (SIDE, SIDE, 3))
        shape = tf.image.extract_jpeg_shape(jpeg)
        top = tf.random.uniform([], maxval=shape[0] - SIDE + 1, dtype=tf.int32)
        left = tf.random.uniform([], maxval=shape[1] - SIDE + 1, dtype=tf.int32)
        return tf.image.decode_and_crop_jpeg(jpeg, [top, left, SIDE, SIDE], channels=3)

    def load(*element: Any) -> Any:
        jpeg, label = read(*element)
        return {"image": tf.image.random_flip_left_right(crop(jpeg)), "label": label}

    batches = elements.map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False)
    batches = batches.batch(IMAGE_BATCH, drop_remainder=True).prefetch(tf.data.AUTOTUNE)
    iterator: Iterator[Any] = batches.as_numpy_iterator()
    return iterator


def spdl_source(folder: Path) -> Iterator[tuple[str, int]]:
    files = data.image_files(folder)
    while True:
        random.shuffle(files)
        yield from files


def spdl_batches(folder: Path, load: Any, collate: Any) -> Iterator[Any]:
    from spdl.pipeline import PipelineBuilder

    pipeline = (
        PipelineBuilder()
        .add_source(spdl_source(folder))
        .pipe(load, concurrency=WORKERS)
        .aggregate(IMAGE_BATCH, drop_last=True)
        .pipe(collate)
        .add_sink(4)
        .build(num_threads=WORKERS + 1)
    )
    with pipeline.auto_stop():
        yield from pipeline


def spdl_opencv(folder: Path) -> Iterator[Any]:
    """With the decoder that the others use: its own needs the libraries of FFmpeg."""

    def load(element: tuple[str, int]) -> Any:
        path, label = element
        with open(path, "rb") as file:
            return decode_crop_flip(file.read(), np.random.default_rng()), label

    def collate(elements: list[Any]) -> Any:
        images, labels = zip(*elements, strict=True)
        return {"image": np.stack(images), "label": np.array(labels)}

    return spdl_batches(folder, load, collate)


def webdataset(folder: Path) -> Iterable[Any]:
    import webdataset as wds

    def crop(sample: Any) -> Any:
        image = decode_crop_flip(sample["jpg"], generator())
        return {"image": np.ascontiguousarray(image), "label": int(sample["cls"])}

    shards = sorted(str(path) for path in folder.glob("shards/*.tar"))
    dataset = wds.WebDataset(shards, resampled=True, nodesplitter=wds.split_by_node).shuffle(512)
    dataset = dataset.map(crop).batched(IMAGE_BATCH, partial=False)
    loader: Iterable[Any] = wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
    return loader


def crop_sample(sample: Any) -> Any:
    image = decode_crop_flip(sample["image"], generator())
    return {"image": np.ascontiguousarray(image), "label": sample["label"]}


def litdata(folder: Path) -> Iterator[Any]:
    import litdata

    dataset = litdata.StreamingDataset(
        str(folder / "litdata_images"), shuffle=True, drop_last=True, transform=crop_sample
    )
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=IMAGE_BATCH, num_workers=WORKERS, persistent_workers=True
    )
    return for_ever(loader)


def streaming(folder: Path) -> Iterator[Any]:
    module = import_streaming()
    module.base.util.clean_stale_shared_memory()

    class Cropped(module.StreamingDataset):  # type: ignore[name-defined, misc]
        def __getitem__(self, key: int) -> Any:
            return crop_sample(super().__getitem__(key))

    dataset = Cropped(
        local=str(folder / "streaming_images"),
        shuffle=True,
        batch_size=IMAGE_BATCH,
        epoch_size=8 * data.IMAGES,
    )
    from torch.utils.data import DataLoader

    loader = DataLoader(
        dataset, batch_size=IMAGE_BATCH, num_workers=WORKERS, persistent_workers=True
    )
    return for_ever(loader)
