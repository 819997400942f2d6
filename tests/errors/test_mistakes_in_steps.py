"""Mistakes in numbers, streams, workers, functions, seeds, and datasets that are joined."""

import pytest

import bushel
from bushel import IterDataset, MapDataset, MultiprocessingOptions, ReadOptions
from bushel.experimental import (
    InterleaveIterDataset,
    LimitIterDataset,
    WindowShuffleMapDataset,
    ZipMapDataset,
)
from bushel.transforms import Batch
from tests.errors.mistakes import Mistake, assert_told, numbers, stream

MISTAKES: dict[str, Mistake] = {
    # Numbers.
    'batch("8")': (
        lambda: numbers.batch("8"),
        TypeError,
        "batch_size must be an integer, and is '8', a str.",
    ),
    'stream.batch("8")': (
        lambda: stream.batch("8"),
        TypeError,
        "batch_size must be an integer, and is '8', a str.",
    ),
    "batch(2.5)": (lambda: numbers.batch(2.5), TypeError, "an integer, and is 2.5, a float"),
    "batch(None)": (lambda: numbers.batch(None), TypeError, "batch_size must be an integer"),
    "batch(0)": (lambda: numbers.batch(0), ValueError, "batch_size must be positive. Got 0."),
    "batch(-1)": (lambda: stream.batch(-1), ValueError, "batch_size must be positive. Got -1."),
    "batch_fn=3": (
        lambda: numbers.batch(2, batch_fn=3),
        TypeError,
        "`batch_fn` must be a function, and is 3",
    ),
    'repeat("2")': (lambda: numbers.repeat("2"), TypeError, "num_epochs must be an integer"),
    "repeat(0)": (lambda: numbers.repeat(0), ValueError, "num_epochs must be positive, but got 0"),
    "repeat().repeat()": (
        lambda: numbers.repeat().repeat(),
        ValueError,
        "`repeat` does nothing for a dataset that is infinite already",
    ),
    'take("3")': (lambda: stream.take("3"), TypeError, "count must be an integer"),
    "take(-1)": (lambda: stream.take(-1), ValueError, "takes a number of elements, and got -1"),
    "skip(-1)": (lambda: stream.skip(-1), ValueError, "takes a number of elements, and got -1"),
    "windows(0)": (lambda: stream.windows(0), ValueError, "size and stride must be positive"),
    'ds["a"]': (lambda: numbers["a"], TypeError, "a position must be an integer, and is 'a'"),
    "ds[1.5]": (lambda: numbers[1.5], TypeError, "a position must be an integer, and is 1.5"),
    "empty[0]": (lambda: MapDataset.source([])[0], IndexError, "this dataset is empty"),
    # Streams are no sequences.
    "stream[0]": (lambda: stream[0], TypeError, "an IterDataset is a stream"),
    "stream[0], instead": (lambda: stream[0], TypeError, "`ds.skip(n).take(1)`"),
    "stream[1:3]": (
        lambda: stream[1:3],
        TypeError,
        "index the `MapDataset` from which it was made",
    ),
    "len(stream)": (lambda: len(stream), TypeError, "object of type 'IterDataset' has no len()"),
    "stream.slice": (
        lambda: stream.slice(slice(1)),
        AttributeError,
        "`slice` is for random-access datasets (`MapDataset`): call it before",
    ),
    "stream.lanes": (lambda: stream.lanes(2), AttributeError, "call it before `to_iter_dataset()`"),
    "ds.mp_prefetch": (
        lambda: numbers.mp_prefetch(MultiprocessingOptions(2)),
        AttributeError,
        "write `ds.to_iter_dataset().mp_prefetch(...)`",
    ),
    "ds.pack": (
        lambda: numbers.pack({"tokens": 8}),
        AttributeError,
        "`pack` is for streams (`IterDataset`): write `ds.to_iter_dataset().pack(...)`",
    ),
    "ds.suffle": (lambda: numbers.suffle(), AttributeError, "Did you mean `shuffle`?"),
    "stream.bacth": (lambda: stream.bacth(3), AttributeError, "Did you mean `batch`?"),
    "bushel.Dataloader": (
        lambda: bushel.Dataloader,  # type: ignore[attr-defined]
        AttributeError,
        "module 'bushel' has no attribute 'Dataloader'. Did you mean `DataLoader`?",
    ),
    # Workers and threads.
    "mp_prefetch(2)": (
        lambda: stream.mp_prefetch(2),
        TypeError,
        "Write `mp_prefetch(MultiprocessingOptions(num_workers=2))`",
    ),
    "mp_prefetch(workers=2)": (
        lambda: stream.mp_prefetch(workers=2),
        TypeError,
        "Did you mean `mp_prefetch(MultiprocessingOptions(num_workers=...))`?",
    ),
    "MultiprocessingOptions(workers=2)": (
        lambda: MultiprocessingOptions(workers=2),  # type: ignore[call-arg]
        TypeError,
        "unexpected keyword argument 'workers'. Did you mean `num_workers`?",
    ),
    "MultiprocessingOptions(-1)": (
        lambda: MultiprocessingOptions(-1),
        ValueError,
        "num_workers must not be negative, and is -1",
    ),
    'MultiprocessingOptions("2")': (
        lambda: MultiprocessingOptions("2"),  # type: ignore[arg-type]
        TypeError,
        "num_workers must be an integer: '2'",
    ),
    "on_hang": (
        lambda: MultiprocessingOptions(1, on_hang="kill"),
        ValueError,
        "on_hang must be one of ['wait', 'replace', 'raise'], and is 'kill'",
    ),
    "hang_timeout=0": (
        lambda: MultiprocessingOptions(1, hang_timeout=0),
        ValueError,
        "hang_timeout must be positive, and is 0",
    ),
    "ReadOptions(-1)": (
        lambda: ReadOptions(-1),
        ValueError,
        "num_threads must not be negative, and is -1",
    ),
    "ReadOptions(2, -1)": (
        lambda: ReadOptions(2, -1),
        ValueError,
        "prefetch_buffer_size must not be negative, and is -1",
    ),
    'ReadOptions("2")': (
        lambda: ReadOptions("2"),  # type: ignore[arg-type]
        TypeError,
        "num_threads must be an integer, and is '2'",
    ),
    "to_iter_dataset(3)": (
        lambda: numbers.to_iter_dataset(3),
        TypeError,
        "read_options must be `ReadOptions`",
    ),
    "mp_prefetch twice": (
        lambda: iter(
            stream.mp_prefetch(MultiprocessingOptions(1)).mp_prefetch(MultiprocessingOptions(1))
        ),
        ValueError,
        "`mp_prefetch` cannot be nested",
    ),
    "worker_init_fn=3": (
        lambda: stream.mp_prefetch(MultiprocessingOptions(1), 3),
        TypeError,
        "`worker_init_fn` must be a function, and is 3",
    ),
    # Functions.
    "random_map of one argument": (
        lambda: list(numbers.seed(1).random_map(lambda x: x)),
        TypeError,
        "the function is called with 2 arguments: (element, rng)",
    ),
    "map of two arguments": (
        lambda: list(numbers.map(lambda x, y: x)),
        TypeError,
        "the function is called with 1 argument: (element)",
    ),
    "map_with_index of one": (
        lambda: list(numbers.map_with_index(lambda x: x)),
        TypeError,
        "the function is called with 2 arguments: (index, element)",
    ),
    "filter of two": (
        lambda: list(numbers.filter(lambda x, y: x)),
        TypeError,
        "the function is called with 1 argument: (element)",
    ),
    "map(None)": (lambda: numbers.map(None), TypeError, "`map` takes a function"),
    "map(3)": (lambda: stream.map(3), TypeError, "`map` takes a function or a `transforms.Map`"),
    "filter(3)": (lambda: numbers.filter(3), TypeError, "`filter` takes a function"),
    "apply(f)": (lambda: numbers.apply(abs), NotImplementedError, "write `ds.map(function)`"),
    "apply(Batch)": (lambda: numbers.apply(Batch), TypeError, "got the class Batch: write `Batch("),
    "a failing map": (
        lambda: list(numbers.map(lambda x: 1 / x)),
        ZeroDivisionError,
        "at position 0.",
    ),
    # Seeds.
    "shuffle()": (lambda: numbers.shuffle(), ValueError, "Call `ds.seed(seed)` before it"),
    'shuffle(seed="a")': (
        lambda: numbers.shuffle(seed="a"),
        TypeError,
        "seed must be an integer, and is 'a'",
    ),
    "shuffle(seed=-1)": (
        lambda: numbers.shuffle(seed=-1),
        ValueError,
        "the seed must be an integer between 0 and 2**32-1 (got -1)",
    ),
    "random_map without seed": (
        lambda: numbers.random_map(max),
        ValueError,
        "`random_map` requires a seed. Call `ds.seed(seed)` before it",
    ),
    "stream.shuffle(seed=1)": (
        lambda: stream.shuffle(seed=1),
        TypeError,
        "a stream is shuffled within a buffer of so many elements. Write `shuffle(1000, seed=...)`",
    ),
    "stream.shuffle(0)": (
        lambda: stream.shuffle(0, seed=1),
        ValueError,
        "buffer_size must be positive, and is 0",
    ),
    # Several datasets.
    "weights": (
        lambda: MapDataset.mix([numbers, numbers], [1, 2, 3]),
        ValueError,
        "`mix` got 2 datasets and 3 weights: [1, 2, 3]. Give one weight for each dataset.",
    ),
    "weights of streams": (
        lambda: IterDataset.mix([stream, stream], [1]),
        ValueError,
        "`mix` got 2 datasets and 1 weights: [1]. Give one weight for each dataset.",
    ),
    "a negative weight": (
        lambda: MapDataset.mix([numbers, numbers], [1, -2]),
        ValueError,
        "positive, finite, non-zero weights, and got [1, -2]",
    ),
    "a weight of 0": (
        lambda: MapDataset.mix([numbers, numbers], [1, 0]),
        ValueError,
        "Leave a dataset out instead of giving it the weight 0",
    ),
    "mix([])": (lambda: MapDataset.mix([]), ValueError, "`mix` needs at least one dataset"),
    "mix of streams": (
        lambda: MapDataset.mix([stream, stream]),
        TypeError,
        "`mix` takes `MapDataset`s, and item 0 is a IterDataset",
    ),
    "concatenate of streams": (
        lambda: MapDataset.concatenate([numbers, stream]),
        TypeError,
        "`concatenate` takes `MapDataset`s, and item 1 is a IterDataset",
    ),
    "zip of unlike lengths": (
        lambda: ZipMapDataset([numbers, MapDataset.range(3)]),
        ValueError,
        "needs equally long datasets, and got [10, 3]",
    ),
    "interleave, cycle 0": (
        lambda: InterleaveIterDataset([stream], cycle_length=0),
        ValueError,
        "`cycle_length` must be positive, and is 0",
    ),
    "interleave of a generator": (
        lambda: InterleaveIterDataset((part for part in [stream]), cycle_length=1),  # type: ignore[arg-type]
        TypeError,
        "Write `list(...)` around it",
    ),
    "limit 0": (lambda: LimitIterDataset(stream, 0), ValueError, "`count` must be positive"),
    "window 0": (
        lambda: WindowShuffleMapDataset(numbers, window_size=0, seed=1),
        ValueError,
        "window_size must be positive, and is 0",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_what_is_said(mistake: Mistake) -> None:
    assert_told(mistake)


def test_a_stream_has_no_positions_for_whoever_asks() -> None:
    assert not hasattr(stream, "__getitem__")
    assert not hasattr(stream, "__len__")
    assert getattr(stream, "slice", None) is None
