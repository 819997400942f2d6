"""Ready tokens: random windows of 1,025 from a memory map of uint16, batches of 8 and of 64."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from benchmarks.jobs import data
from benchmarks.jobs.job import Entry, Job, for_ever
from benchmarks.jobs.user import WINDOW

WORKERS = 2
MANY = 10**8  # as good as for ever, where a length is needed


def windows_in(batch: Any) -> int:
    return 2 * int(np.prod(np.shape(batch["tokens"])))


def check(batch_size: int, folder: Path, batches: list[Any]) -> str | None:
    """Looks for each window in the file, by its first tokens."""
    tokens = np.asarray(mapped(folder))
    starts: set[int] = set()
    for batch in batches:
        rows = batch["tokens"]
        if rows.shape != (batch_size, WINDOW) or rows.dtype.kind not in "iu":
            return f"a batch of {rows.dtype} {rows.shape}"
        row = rows[0].astype(np.uint16)
        places = np.flatnonzero(tokens[: len(tokens) - WINDOW + 1] == row[0])
        found = [p for p in places if np.array_equal(tokens[p : p + WINDOW], row)]
        if not found:
            return f"a window that is not in the file: {row[:4].tolist()} ..."
        starts.update(found)
    if len(starts) < 0.9 * len(batches):
        return f"{len(batches)} windows, and only {len(starts)} different ones"
    return None


def mapped(folder: Path) -> Any:
    return np.memmap(folder / "tokens.bin", np.uint16, "r")


def by_hand(batch_size: int, folder: Path) -> Iterator[Any]:
    """Takes the windows of a batch by index, all in one call; numpy has nothing quicker."""
    windows = sliding_window_view(np.asarray(mapped(folder)), WINDOW)
    rng = np.random.default_rng(0)
    while True:
        yield {"tokens": windows[rng.integers(len(windows), size=batch_size)]}


def like_nanogpt(batch_size: int, folder: Path) -> Iterator[Any]:
    """Stacks windows as nanoGPT does, which makes them int64 for torch."""
    rng = np.random.default_rng(0)
    while True:
        tokens = mapped(folder)  # opened anew for each batch, as there
        starts = rng.integers(len(tokens) - WINDOW + 1, size=batch_size)
        rows = [tokens[start : start + WINDOW].astype(np.int64) for start in starts]
        yield {"tokens": np.stack(rows)}


def bushel(batch_size: int, workers: int, folder: Path) -> Iterable[Any]:
    import bushel

    path = str(folder / "tokens.bin")
    source = bushel.sources.TokenDataSource(path, WINDOW, dtype=np.uint16, stride=1)
    dataset = bushel.MapDataset.source(source).seed(0).shuffle().repeat().batch(batch_size)
    stream = dataset.map(named).to_iter_dataset()
    if workers:
        stream = stream.mp_prefetch(bushel.MultiprocessingOptions(num_workers=workers))
    return stream


def named(rows: Any) -> dict[str, Any]:
    return {"tokens": rows}


class Windows:
    """A source for Grain, a dataset for torch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._tokens: Any = None

    def __len__(self) -> int:
        return data.TOKENS - WINDOW + 1

    def __getitem__(self, start: int) -> dict[str, Any]:
        if self._tokens is None:
            self._tokens = mapped(self._folder)
        return {"tokens": self._tokens[start : start + WINDOW].astype(np.int32)}

    def __getstate__(self) -> dict[str, Any]:
        return {"_folder": self._folder, "_tokens": None}

    def __repr__(self) -> str:
        return f"Windows({str(self._folder)!r})"


def grain(batch_size: int, folder: Path) -> Iterable[Any]:
    """Without workers, as torch below: a window is too small to be worth the way from one."""
    import grain

    dataset = grain.MapDataset.source(Windows(folder)).seed(0).shuffle().repeat()
    batches: Iterable[Any] = dataset.batch(batch_size).to_iter_dataset()
    return batches


def torch(batch_size: int, folder: Path) -> Iterable[Any]:
    """With replacement: a permutation of so many windows would take seconds."""
    from torch.utils.data import DataLoader, RandomSampler

    windows: Any = Windows(folder)
    sampler = RandomSampler(windows, replacement=True, num_samples=MANY)
    loader: Iterable[Any] = DataLoader(windows, batch_size=batch_size, sampler=sampler)
    return loader


def litdata(batch_size: int, folder: Path) -> Iterator[Any]:
    import litdata
    from litdata.streaming.item_loader import TokensLoader

    dataset = litdata.StreamingDataset(
        str(folder / "litdata_tokens"),
        item_loader=TokensLoader(block_size=WINDOW),
        shuffle=True,
        drop_last=True,
    )
    loader = litdata.StreamingDataLoader(
        dataset, batch_size=batch_size, num_workers=WORKERS, drop_last=True
    )
    for batch in for_ever(loader):
        yield {"tokens": batch}


def tf(batch_size: int, folder: Path) -> Iterator[Any]:
    """Holds the tokens as a tensor; a batch is one gather."""
    import tensorflow as tf

    tokens = tf.constant(mapped(folder))
    within = tf.range(WINDOW)

    def windows(_: Any) -> Any:
        starts = tf.random.uniform([batch_size], maxval=data.TOKENS - WINDOW + 1, dtype=tf.int32)
        return {"tokens": tf.gather(tokens, starts[:, None] + within)}

    batches = tf.data.Dataset.range(MANY).map(windows, num_parallel_calls=tf.data.AUTOTUNE)
    iterator: Iterator[Any] = batches.prefetch(tf.data.AUTOTUNE).as_numpy_iterator()
    return iterator


def job(batch_size: int) -> Job:
    def entry(name: str, package: str | None, make: Callable[..., Any], *before: Any) -> Entry:
        return Entry(name, package, partial(make, batch_size, *before))

    return Job(
        name=f"tokens_{batch_size}",
        title=f"ready tokens: random windows of 1,025, batches of {batch_size}",
        unit="B/s",
        units_in=windows_in,
        check=partial(check, batch_size),
        checked_batches=32,
        prepared=("tokens",),
        entries=(
            entry("by hand, taken by index", None, by_hand),
            entry("by hand, as nanoGPT", None, like_nanogpt),
            entry("bushel, 0 workers", "bushel", bushel, 0),
            entry("bushel, 2 workers", "bushel", bushel, 2),
            entry("Grain", "grain", grain),
            entry("torch", "torch.utils.data", torch),
            entry("tf.data", "tensorflow", tf),
            Entry(
                "litdata, 2 workers", "litdata", partial(litdata, batch_size), ("litdata_tokens",)
            ),
        ),
    )


OF_8 = job(8)
OF_64 = job(64)
