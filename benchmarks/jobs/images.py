"""Images: decode, crop, flip, batches of 64; from folders, shards and ArrayRecord."""

import mmap
import os
import tarfile
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import count, cycle, islice
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.jobs import convert, data, peers_images
from benchmarks.jobs.job import Entry, Job
from benchmarks.jobs.user import IMAGE_BATCH, SIDE, Image, decode_crop_flip

CORES = 2
SLOTS = 4  # batches of each process that may be ready at a time
Read = Callable[[int], tuple[bytes, int]]


def images_in(batch: Any) -> int:
    return len(batch["label"])


def check(folder: Path, batches: list[Any]) -> str | None:
    """Holds an epoch against the files: kind, labels, and that the pictures are those."""
    for batch in batches:
        image, label = batch["image"], batch["label"]
        if image.dtype != np.uint8 or image.shape != (IMAGE_BATCH, SIDE, SIDE, 3):
            return f"a batch of {image.dtype} {image.shape}"
        if label.shape != (IMAGE_BATCH,):
            return f"labels of {label.shape}"
    labels = np.bincount(np.concatenate([batch["label"] for batch in batches]))
    expected = len(batches) * IMAGE_BATCH / data.CLASSES
    if len(labels) != data.CLASSES or abs(labels - expected).max() > 0.6 * expected:
        return f"labels as often as {labels.tolist()}, each expected {expected:.0f} times"
    brightness = float(np.mean([batch["image"].mean(dtype=np.float64) for batch in batches]))
    low, high = 0.96 * convert.brightness(folder), 1.04 * convert.brightness(folder)
    if not low < brightness < high:
        return f"pictures of brightness {brightness:.1f}, where {low:.1f} to {high:.1f} is expected"
    return None


def by_hand(read: Read, records: int) -> Iterator[Any]:
    """Lets two forked processes write every other batch into memory that the trainer sees.

    A batch is good until the next is asked for, as by hand one would have it: nothing is copied.
    """
    context = get_context("fork")
    images = shared_array((CORES, SLOTS, IMAGE_BATCH, SIDE, SIDE, 3), np.uint8)
    labels = shared_array((CORES, SLOTS, IMAGE_BATCH), np.int64)

    def work(worker: int, free: Any, ready: Any) -> None:
        rng = np.random.default_rng(worker)
        keys = order()
        for number in count():
            batch = list(islice(keys, IMAGE_BATCH))
            if number % CORES != worker:
                continue
            slot = free.recv()
            for place, key in enumerate(batch):
                jpeg, labels[worker, slot, place] = read(key)
                images[worker, slot, place] = decode_crop_flip(jpeg, rng)
            ready.send(slot)

    def order() -> Iterator[int]:
        for epoch in count():
            yield from np.random.default_rng(epoch).permutation(records).tolist()

    workers = []
    for worker in range(CORES):
        (slots, free), (done, ready) = context.Pipe(duplex=False), context.Pipe(duplex=False)
        process = context.Process(target=work, args=(worker, slots, ready), daemon=True)
        process.start()
        for slot in range(SLOTS):
            free.send(slot)
        workers.append((process, free, done))
    try:
        for worker, (_, free, done) in cycle(enumerate(workers)):
            slot = done.recv()
            yield {"image": images[worker, slot], "label": labels[worker, slot]}
            free.send(slot)
    finally:
        for process, _, _ in workers:
            process.kill()


def shared_array(shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Makes an array that processes forked from now on have in common."""
    memory = mmap.mmap(-1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    return np.frombuffer(memory, dtype).reshape(shape)


def folders_by_hand(folder: Path) -> Iterator[Any]:
    files = data.image_files(folder)

    def read(key: int) -> tuple[bytes, int]:
        path, label = files[key]
        with open(path, "rb") as file:
            return file.read(), label

    return by_hand(read, len(files))


def shards_by_hand(folder: Path) -> Iterator[Any]:
    """Looks once where the pictures lie in the tar files, and reads them there."""
    places = []
    for path in sorted(folder.glob("shards/*.tar")):
        with tarfile.open(path) as tar:
            found = {member.name: (member.offset_data, member.size) for member in tar}
        content = np.memmap(path, np.uint8, "r")
        for name, (start, size) in found.items():
            if name.endswith(".jpg"):
                at, length = found[name.replace(".jpg", ".cls")]
                label = int(content[at : at + length].tobytes())
                places.append((content[start : start + size], label))
    return by_hand(lambda key: places[key], len(places))


def array_record_by_hand(folder: Path) -> Iterator[Any]:
    from array_record.python.array_record_module import ArrayRecordReader

    @cache
    def reader(process: int) -> Any:
        return ArrayRecordReader(str(folder / "images.array_record"))

    def read(key: int) -> tuple[bytes, int]:
        (record,) = reader(os.getpid()).read([key])
        return record[1:], record[0]

    return by_hand(read, data.IMAGES)


def crop_image(record: Any, rng: np.random.Generator) -> Any:
    return {"image": decode_crop_flip(record["image"], rng), "label": record["label"]}


def crop_member(record: Any, rng: np.random.Generator) -> Any:
    return {"image": decode_crop_flip(record["jpg"], rng), "label": int(record["cls"])}


def crop_bytes(record: bytes, rng: np.random.Generator) -> Any:
    return {"image": decode_crop_flip(record[1:], rng), "label": record[0]}


def chain(lib: ModuleType, source: Any, function: Any, workers: int) -> Iterable[Any]:
    """The pipeline of bushel's guide, and of Grain's."""
    dataset = lib.MapDataset.source(source).seed(0).shuffle().repeat().random_map(function)
    stream = dataset.batch(IMAGE_BATCH, drop_remainder=True).to_iter_dataset()
    if workers:
        stream = stream.mp_prefetch(lib.MultiprocessingOptions(num_workers=workers))
    batches: Iterable[Any] = stream
    return batches


def bushel_folders(folder: Path, workers: int) -> Iterable[Any]:
    import bushel

    source = bushel.sources.ImageFolderDataSource(folder / "images")
    return chain(bushel, source, crop_image, workers)


def bushel_shards(folder: Path, workers: int) -> Iterable[Any]:
    import bushel

    source = bushel.sources.TarDataSource(str(folder / "shards" / "*.tar"), decode=False)
    return chain(bushel, source, crop_member, workers)


def bushel_array_record(folder: Path, workers: int) -> Iterable[Any]:
    import bushel

    source = bushel.sources.ArrayRecordDataSource(str(folder / "images.array_record"))
    return chain(bushel, source, crop_bytes, workers)


# The same with bushel's own transform in place of the user's function.


def own_folders(folder: Path, workers: int) -> Iterable[Any]:
    import bushel

    source = bushel.sources.ImageFolderDataSource(folder / "images")
    return chain(bushel, source, Own(lambda r: (r["image"], r["label"])), workers)


def own_shards(folder: Path, workers: int) -> Iterable[Any]:
    import bushel

    source = bushel.sources.TarDataSource(str(folder / "shards" / "*.tar"), decode=False)
    return chain(bushel, source, Own(lambda r: (r["jpg"], int(r["cls"]))), workers)


def own_array_record(folder: Path, workers: int) -> Iterable[Any]:
    import bushel

    source = bushel.sources.ArrayRecordDataSource(str(folder / "images.array_record"))
    return chain(bushel, source, Own(lambda r: (r[1:], r[0])), workers)


class Own:
    """Decodes and crops by the transform what a function finds in a record, beside its label."""

    def __init__(self, find: Callable[[Any], tuple[bytes, int]]) -> None:
        from bushel.transforms.jpeg import DecodeAndRandomCrop

        self._find = find
        self._crop = DecodeAndRandomCrop(SIDE, scale=None)

    def __call__(self, record: Any, rng: np.random.Generator) -> Any:
        jpeg, label = self._find(record)
        return {"image": self._crop.random_map(jpeg, rng), "label": label}


def image(record: tuple[str, int], rng: np.random.Generator) -> dict[str, Image | int]:
    path, label = record
    with open(path, "rb") as file:
        return {"image": decode_crop_flip(file.read(), rng), "label": label}


def grain_folders(folder: Path, workers: int) -> Iterable[Any]:
    import grain

    return chain(grain, data.image_files(folder), image, workers)


def grain_array_record(folder: Path, workers: int) -> Iterable[Any]:
    import grain

    source = grain.sources.ArrayRecordDataSource(str(folder / "images.array_record"))
    return chain(grain, source, crop_bytes, workers)


def both(name: str, package: str, make: Callable[[Path, int], Iterable[Any]], **more: Any) -> tuple[
    Entry, Entry
]:  # fmt: skip
    """An entry without worker processes, with the options that nobody set, and one with two."""
    return (
        Entry(f"{name}, 0 workers", package, lambda folder: make(folder, 0), **more),
        Entry(f"{name}, 2 workers", package, lambda folder: make(folder, 2), **more),
    )


def job(name: str, title: str, prepared: tuple[str, ...], *entries: Entry) -> Job:
    return Job(
        name=name,
        title=title,
        unit="images/s",
        units_in=images_in,
        check=check,
        checked_batches=data.IMAGES // IMAGE_BATCH,
        prepared=prepared,
        entries=entries,
    )


FOLDERS = job(
    "images_folders",
    "images from folders: decode, random crop, flip, batches of 64",
    ("images",),
    Entry("by hand, 2 processes", None, folders_by_hand),
    *both("bushel", "bushel", bushel_folders),
    *both("bushel, its own decode-and-crop", "bushel", own_folders),
    *both("Grain", "grain", grain_folders),
    Entry("torch, 2 workers", "torch.utils.data", peers_images.torch_folders),
    Entry("tf.data", "tensorflow", peers_images.tf_folders),
    Entry("tf.data, decode_and_crop_jpeg", "tensorflow", peers_images.tf_folders_fused),
    Entry("SPDL, 2 threads", "spdl.pipeline", peers_images.spdl_opencv),
    Entry(
        "Hugging Face, 2 workers",
        "datasets torch.utils.data",
        peers_images.huggingface,
        ("huggingface_images",),
    ),
)
SHARDS = job(
    "images_shards",
    "the same from tar shards, or the shards of a format of its own",
    ("images", "shards"),
    Entry("by hand, 2 processes", None, shards_by_hand),
    *both("bushel", "bushel", bushel_shards),
    *both("bushel, its own decode-and-crop", "bushel", own_shards)[1:],
    Entry("WebDataset, 2 workers", "webdataset", peers_images.webdataset),
    Entry("litdata, 2 workers", "litdata", peers_images.litdata, ("litdata_images",)),
    Entry("Streaming, 2 workers", "streaming", peers_images.streaming, ("streaming_images",)),
    Entry("tf.data, TFRecord", "tensorflow", peers_images.tf_records, ("tfrecord_images",)),
)
ARRAY_RECORD = job(
    "images_array_record",
    "the same from ArrayRecord",
    ("images", "array_record"),
    Entry("by hand, 2 processes", None, array_record_by_hand),
    *both("bushel", "bushel", bushel_array_record),
    *both("bushel, its own decode-and-crop", "bushel", own_array_record)[1:],
    *both("Grain", "grain", grain_array_record),
)
