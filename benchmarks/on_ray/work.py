"""The work: what each system is asked for, and which functions do it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bushel
from benchmarks.records import image_records, normalise
from benchmarks.workloads.jpeg_decode import decode_and_crop, jpegs
from benchmarks.workloads.large_batches import pictures
from benchmarks.workloads.random_map import positioned

# As many as the cluster has CPUs.
WORKERS = 2

Batch = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Work:
    """Records that a function makes of their numbers, in batches."""

    name: str
    title: str
    record: Callable[[int], dict[str, Any]]
    batch_size: int
    batches: int
    # Batches that Ray Data makes in a task: as many as serve it best here.
    block: int

    def stack(self, numbers: Iterable[int]) -> Batch:
        rows = [self.record(int(number)) for number in numbers]
        return {name: np.stack([row[name] for row in rows]) for name in rows[0]}

    def by_hand(self) -> Iterator[Batch]:
        """One process, no way at all: what the others are measured by."""
        for first in count(0, self.batch_size):
            yield self.stack(range(first, first + self.batch_size))

    def _batched(self) -> Any:
        ds = bushel.MapDataset.range(self.batches * self.batch_size)
        # Over and over: local workers are through with an epoch before a reading is.
        return ds.map(self.record).batch(self.batch_size).repeat().to_iter_dataset()

    def local(self) -> Iterable[Batch]:
        """bushel with worker processes of this machine."""
        options = bushel.MultiprocessingOptions(num_workers=WORKERS)
        stream: Iterable[Batch] = self._batched().mp_prefetch(options)
        return stream

    def on_ray(self) -> Iterable[Batch]:
        stream: Iterable[Batch] = self._batched().ray_prefetch(
            bushel.RayOptions(num_workers=WORKERS)
        )
        return stream

    def on_ray_in_views(self) -> Iterable[Batch]:
        """Without the copy that makes arrays writable; those of Ray Data are not, either."""
        stream: Iterable[Batch] = self._batched().ray_prefetch(
            bushel.RayOptions(num_workers=WORKERS, writable=False)
        )
        return stream

    def ray_data(self) -> Iterable[Batch]:
        """Ray Data as its guide for training writes it, with the order of its input."""
        import ray.data

        context = ray.data.DataContext.get_current()
        context.execution_options.preserve_order = True
        context.enable_progress_bars = False
        blocks = self.batches // self.block
        ds = ray.data.range(self.batches * self.batch_size, override_num_blocks=blocks)
        made = ds.map_batches(lambda rows: self.stack(rows["id"]), batch_size=self.batch_size)
        return iter(made.iter_batches(batch_size=self.batch_size, prefetch_batches=4))


def picture(number: int) -> dict[str, Any]:
    made = pictures()
    return {"image": made[number % len(made)]}


_SMALL = 1024


def small(number: int) -> dict[str, Any]:
    return normalise(image_records(_SMALL, 8)[number % _SMALL])


def photograph(number: int) -> dict[str, Any]:
    files = jpegs()
    return {"image": decode_and_crop(files[number % len(files)], positioned(number))}


WORKS = {
    work.name: work
    for work in (
        Work("large", "9.6 MB batches", picture, 64, 4_000, 8),
        Work("small", "batches of 128 small records", small, 128, 200_000, 400),
        Work("jpeg", "JPEG decode, random crop", photograph, 32, 4_000, 4),
    )
}
