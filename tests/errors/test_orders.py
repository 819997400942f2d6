"""What is said of orders, seeds, mixtures, zips and options that cannot be."""

import pytest

from bushel import IterDataset, MapDataset, ReadOptions, errors
from bushel.experimental import (
    DatasetOptions,
    FlatMapIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WindowShuffleMapDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
    ZipMapDataset,
    get_element_spec,
    get_next_index,
    set_next_index,
)
from tests.errors.cases import Case, TooMany, assert_says, numbers, stream

CASES: dict[str, Case] = {
    # Orders.
    "a slice that is none": (
        lambda: numbers.slice(3),  # type: ignore[arg-type]
        errors.PlanError,
        ValueError,
        r"`slice` takes a slice, as in `ds\.slice\(slice\(0, 10\)\)`, not 3",
    ),
    "a step of 0": (
        lambda: numbers[::0],
        ValueError,
        ValueError,
        "slice step cannot be zero",
    ),
    "no epochs": (
        lambda: numbers.repeat(0),
        errors.PlanError,
        ValueError,
        "num_epochs must be positive, but got 0",
    ),
    "repeated for ever, twice": (
        lambda: numbers.repeat().repeat(),
        errors.PlanError,
        ValueError,
        "infinite already",
    ),
    "concatenate beyond the infinite": (
        lambda: MapDataset.concatenate([numbers, numbers.repeat()]),
        errors.PlanError,
        ValueError,
        "dataset 1 is infinite. Call `repeat` after `concatenate`",
    ),
    "concatenate of lists": (
        lambda: MapDataset.concatenate([numbers, [1]]),  # type: ignore[list-item]
        TypeError,
        TypeError,
        "`concatenate` takes `MapDataset`s, and item 1 is a list",
    ),
    "no window": (
        lambda: WindowShuffleMapDataset(numbers, window_size=0, seed=1),
        errors.PlanError,
        ValueError,
        "window_size must be positive, and is 0",
    ),
    "a position that is none": (
        lambda: numbers["a"],  # type: ignore[call-overload]
        TypeError,
        TypeError,
        "a position must be an integer, and is 'a', a str",
    ),
    "an element of nothing": (
        lambda: MapDataset.range(0)[0],
        errors.EmptyDatasetError,
        IndexError,
        "this dataset is empty: it has no element at any position",
    ),
    "an element of an empty slice": (
        lambda: numbers[5:5].shuffle(seed=1)[3],
        errors.EmptyDatasetError,
        ZeroDivisionError,
        "this dataset is empty",
    ),
    # Seeds.
    "a shuffle without a seed": (
        lambda: numbers.shuffle(),
        errors.PlanError,
        ValueError,
        r"`shuffle` requires a seed\. Call `ds\.seed\(seed\)` before it, or write "
        r"`shuffle\(\.\.\., seed=seed\)`",
    ),
    "a random map without a seed": (
        lambda: stream.random_map(lambda x, rng: x),
        errors.PlanError,
        ValueError,
        r"`random_map` requires a seed",
    ),
    "a seed of too many bits": (
        lambda: numbers.shuffle(seed=2**32),
        errors.PlanError,
        ValueError,
        r"`shuffle`: the seed must be an integer between 0 and 2\*\*32-1 \(got 4294967296\)",
    ),
    "a negative seed": (
        lambda: numbers.shuffle(seed=-1),
        errors.PlanError,
        ValueError,
        r"got -1",
    ),
    "a seed of a window shuffle": (
        lambda: WindowShuffleIterDataset(stream, window_size=2, seed=-1),
        errors.PlanError,
        ValueError,
        r"`window shuffle`: the seed must be.*got -1",
    ),
    "a negative seed of a random map": (
        lambda: numbers.random_map(lambda x, rng: x, seed=-5),
        errors.PlanError,
        ValueError,
        "`random_map` needs a seed that is not negative, and got -5",
    ),
    "half a seed": (
        lambda: numbers.shuffle(seed=0.5),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "seed must be an integer, and is 0.5, a float",
    ),
    # Several inputs.
    "a mix of nothing": (
        lambda: MapDataset.mix([]),
        errors.PlanError,
        ValueError,
        "`mix` needs at least one dataset, and got none",
    ),
    "a mix with an empty part": (
        lambda: MapDataset.mix([numbers, MapDataset.range(0)]),
        errors.PlanError,
        ValueError,
        "`mix` needs datasets with elements, and dataset 1 has length 0",
    ),
    "a weight too few": (
        lambda: MapDataset.mix([numbers, numbers], [1]),
        errors.PlanError,
        ValueError,
        r"`mix` got 2 datasets and 1 weights: \[1\]",
    ),
    "a weight of 0": (
        lambda: IterDataset.mix([stream, stream], [1, 0]),
        errors.PlanError,
        ValueError,
        r"positive, finite, non-zero weights, and got \[1, 0\]\. Leave a dataset out",
    ),
    "a weight of nan": (
        lambda: IterDataset.mix([stream, stream], [1, float("nan")]),
        errors.PlanError,
        ValueError,
        "positive, finite, non-zero",
    ),
    "weights by other names": (
        lambda: IterDataset.mix({"a": stream}, {"b": 1}),
        errors.PlanError,
        ValueError,
        r"`mix` got datasets \['a'\] and weights for \['b'\]",
    ),
    "weights by name for a list": (
        lambda: IterDataset.mix([stream], {"a": 1}),
        errors.PlanError,
        ValueError,
        "a mapping of weights only with a mapping of datasets",
    ),
    "a selection of no dataset": (
        lambda: MapDataset.select_from_datasets([numbers], [(0, 0), (3, 0)])[1],
        IndexError,
        IndexError,
        "the selection map named dataset 3, but there are only 1",
    ),
    "a zip of nothing": (
        lambda: ZipMapDataset([]),
        errors.PlanError,
        ValueError,
        "`ZipMapDataset` needs at least one dataset, and got none",
    ),
    "a zip of several lengths": (
        lambda: ZipMapDataset([numbers, MapDataset.range(3)]),
        errors.PlanError,
        ValueError,
        r"`ZipMapDataset` needs equally long datasets, and got \[10, 3\]",
    ),
    "streams that do not end together": (
        lambda: list(ZipIterDataset([stream, MapDataset.range(3).to_iter_dataset()])),
        errors.PlanError,
        ValueError,
        r"`ZipIterDataset`: argument 2 is shorter than argument 1.*`strict=False`",
    ),
    "streams that do not end together, the other way": (
        lambda: list(ZipIterDataset([MapDataset.range(3).to_iter_dataset(), stream])),
        errors.PlanError,
        ValueError,
        r"`ZipIterDataset`: argument 2 is longer than argument 1",
    ),
    # Options.
    "no read options": (
        lambda: numbers.to_iter_dataset(4),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "read_options must be `ReadOptions`, and is a int",
    ),
    "fewer threads than none": (
        lambda: ReadOptions(num_threads=-1),
        errors.PlanError,
        ValueError,
        r"ReadOptions\.num_threads must not be negative, and is -1",
    ),
    "half a thread": (
        lambda: ReadOptions(num_threads=0.5),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        r"ReadOptions\.num_threads must be an integer, and is 0\.5",
    ),
    "a negative buffer": (
        lambda: ThreadPrefetchIterDataset(stream, prefetch_buffer_size=-1),
        errors.PlanError,
        ValueError,
        "`prefetch_buffer_size` must not be negative, and is -1",
    ),
    "no dataset options": (
        lambda: WithOptionsIterDataset(stream, {}),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "options must be `DatasetOptions`, not dict",
    ),
    "no stream": (
        lambda: FlatMapIterDataset([1, 2], TooMany()),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "this takes an `IterDataset`, and got a list",
    ),
    "no dataset": (
        lambda: WindowShuffleMapDataset([1, 2], window_size=2, seed=1),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "this takes a `MapDataset`, and got a list",
    ),
    "the spec of a list": (
        lambda: get_element_spec([1]),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "`get_element_spec` takes a dataset, and got a list",
    ),
    "the index of a list": (
        lambda: get_next_index(iter([1])),  # type: ignore[arg-type]
        TypeError,
        TypeError,
        "this takes a dataset's iterator, and got a list_iterator",
    ),
    "an index beyond the end": (
        lambda: set_next_index(iter(stream), 11),
        errors.StateRangeError,
        IndexError,
        "there is no element 11; the dataset has 10",
    ),
    "the index after a filter": (
        lambda: get_next_index(iter(stream.filter(bool))),
        NotImplementedError,
        NotImplementedError,
        "this pipeline cannot tell elements by index without producing them: it filters",
    ),
    "a filter that drops everything": (
        lambda: list(
            WithOptionsIterDataset(
                MapDataset.range(5000).to_iter_dataset().filter(lambda number: number < 0),
                DatasetOptions(filter_raise_threshold_ratio=0.9),
            )
        ),
        errors.FilterError,
        ValueError,
        r"`filter\(<lambda> at test_orders.py:\d+\)` dropped 100\.00% of the last 1000 elements",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_says(case: Case) -> None:
    assert_says(case)
