"""The one list of pipelines that every contract test runs.

A new operation joins by one entry here, or in `by_position.py` where it is read by position. An
entry is named for the operation it is there for, `MapDataset.map` or `ZipIterDataset`, and after a
colon for what is special about it.
`test_coverage.py` says which operations are missing.

An entry builds on a `Kit`, which decides what a contract varies: where records come from and
how they are read. Records are {"id": int64 scalar, "pair": float32 array of two}, and record
i is the same whatever the kit.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from bushel import (
    IterDataset,
    MapDataset,
    WeightSchedule,
    transforms,
)
from bushel.experimental import (
    BestFitPackIterDataset,
    BOSHandling,
    CacheIterDataset,
    ConcatThenSplitIterDataset,
    DatasetOptions,
    FirstFitPackIterDataset,
    FlatMapIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    RepeatIterDataset,
    ThreadPrefetchIterDataset,
    WindowShuffleIterDataset,
    WithOptionsIterDataset,
    ZipIterDataset,
    multithread_prefetch,
)
from tests.contract.by_position import BY_POSITION
from tests.contract.kit import INLINE, Build, Kit, a_new_file, cached_on_disk
from tests.contract.parts import (
    Copies,
    DoubleColumns,
    Jitter,
    NotThird,
    WithIndex,
    double,
    double_columns,
    double_columns_with_last,
    fail_on_negative,
    fail_on_third,
    ids_in_rows,
    ids_of,
    is_not_third,
    is_rare,
    jitter,
    ragged,
    record,
    size_of_id,
    with_index,
)
from tests.contract.subclasses import Pairs
from tests.thorough import THOROUGH

__all__ = [
    "INLINE",
    "PIPELINES",
    "RANDOM_ACCESS",
    "Kit",
    "by_turns",
    "cached_on_disk",
    "elements_of",
    "stream_of",
]

_SKIP_HALF = DatasetOptions(filter_warn_threshold_ratio=None)

_STREAMS: dict[str, Build] = {
    # Streams.
    "IterDataset.take: in the middle of what a flat map made": lambda kit: FlatMapIterDataset(
        kit.stream(20).filter(is_not_third).take(9), Copies()
    ),
    "IterDataset.on_error": lambda kit: (
        kit.stream(31).map(fail_on_third).on_error("skip").map_with_index(with_index).batch(4)
    ),
    "IterDataset.on_error: replaced": lambda kit: (
        kit.stream(31).map(fail_on_third).on_error("replace", replacement=record(-1)).batch(4)
    ),
    "IterDataset.on_error: both": lambda kit: (
        kit.source(60)
        .map(fail_on_third)
        .on_error("replace", replacement=record(-1))
        .to_iter_dataset(kit.read)
        .map(fail_on_negative)
        .on_error("skip", budget=50)
        .batch(3)
    ),
    "MapDataset.to_iter_dataset": lambda kit: kit.stream(27),
    "MapDataset.to_iter_dataset: allow_nones": lambda kit: (
        kit.source(27).filter(is_not_third).to_iter_dataset(kit.read, allow_nones=True)
    ),
    "IterDataset.map": lambda kit: kit.stream(27).map(double),
    "IterDataset.map_with_index": lambda kit: (
        kit.stream(27).filter(is_not_third).map_with_index(with_index)
    ),
    "IterDataset.map_batches": lambda kit: kit.stream(27).map_batches(double_columns),
    "IterDataset.map_batches: then batch": lambda kit: (
        kit.stream(27).map_batches(double_columns).batch(4)
    ),
    "IterDataset.random_map": lambda kit: kit.stream(27).random_map(jitter, seed=3),
    "IterDataset.random_map: filtered": lambda kit: (
        kit.stream(27).filter(is_not_third).random_map(jitter, seed=3).filter(is_not_third)
    ),
    "IterDataset.seed": lambda kit: kit.stream(21).seed(4).random_map(jitter).random_map(jitter),
    "IterDataset.filter": lambda kit: kit.stream(40).filter(is_not_third).map(double),
    "IterDataset.filter: nearly all": lambda kit: kit.stream(60).filter(is_rare),
    "IterDataset.filter: all": lambda kit: kit.stream(12).filter(lambda element: False),
    "IterDataset.batch": lambda kit: kit.stream(23).batch(4),
    "IterDataset.batch: filtered": lambda kit: (
        kit.stream(50).filter(is_not_third).batch(4, drop_remainder=True)
    ),
    "IterDataset.batch: batch_fn": lambda kit: (
        kit.stream(50).filter(is_rare).batch(3, batch_fn=ids_of)
    ),
    "IterDataset.batch: of batches": lambda kit: (
        kit.stream(50).filter(is_not_third).batch(2, drop_remainder=True).map(double).batch(3)
    ),
    # Parts of streams.
    "IterDataset.take": lambda kit: kit.stream(40).filter(is_not_third).take(13),
    "IterDataset.skip": lambda kit: kit.stream(30).map(double).skip(11),
    "IterDataset.skip: filtered": lambda kit: (
        kit.stream(50).filter(is_not_third).skip(7).map_with_index(with_index)
    ),
    "IterDataset.skip: batches": lambda kit: kit.stream(30).batch(4).skip(3),
    "IterDataset.skip: all": lambda kit: kit.stream(20).skip(21),
    "IterDataset.skip_steps": lambda kit: kit.stream(40).map(double).skip_steps([(30, 33), (4, 9)]),
    "IterDataset.skip_steps: filtered": lambda kit: (
        kit.stream(60).filter(is_not_third).skip_steps([(0, 2), (9, 9), (12, 20)]).batch(4)
    ),
    "IterDataset.skip_steps: batches": lambda kit: (
        kit.stream(50).batch(4).skip_steps([(2, 3), (9, 99)])
    ),
    "IterDataset.skip_steps: in lanes": lambda kit: (
        kit.source(60)
        .lanes(4, read_options=kit.read)
        .filter(is_not_third)
        .batch(4)
        .skip_steps([(2, 4)])
    ),
    "IterDataset.enumerate: in lanes": lambda kit: (
        kit.source(40).lanes(4, read_options=kit.read).filter(is_not_third).enumerate().batch(4)
    ),
    "IterDataset.enumerate": lambda kit: kit.stream(27).filter(is_not_third).enumerate(2),
    "IterDataset.repeat": lambda kit: kit.stream(9).filter(is_not_third).repeat(3),
    "IterDataset.unbatch": lambda kit: kit.stream(23).batch(4).map(double).unbatch(),
    "IterDataset.unbatch: filtered": lambda kit: (
        kit.stream(40).filter(is_not_third).batch(3).unbatch().map_with_index(with_index).batch(5)
    ),
    "IterDataset.windows": lambda kit: kit.stream(23).windows(5, stride=2),
    "IterDataset.windows: filtered": lambda kit: (
        kit.stream(40).filter(is_not_third).windows(4, drop_remainder=False).map(double)
    ),
    "IterDataset.windows: apart": lambda kit: (
        kit.stream(40).map_batches(double_columns).windows(3, stride=5, drop_remainder=False)
    ),
    "IterDataset.shuffle": lambda kit: kit.stream(40).shuffle(10, seed=4),
    "IterDataset.shuffle: filtered": lambda kit: (
        kit.stream(60).filter(is_not_third).shuffle(6, seed=1).batch(3)
    ),
    "FlatMapIterDataset": lambda kit: FlatMapIterDataset(kit.stream(17), Copies()),
    "FlatMapIterDataset: filtered": lambda kit: FlatMapIterDataset(
        kit.stream(30).filter(is_not_third), Copies()
    ).map_with_index(with_index),
    "FlatMapIterDataset: of flat maps": lambda kit: FlatMapIterDataset(
        FlatMapIterDataset(kit.stream(9), Copies()), Copies()
    ).batch(5),
    "WindowShuffleIterDataset": lambda kit: WindowShuffleIterDataset(
        kit.stream(22), window_size=5, seed=6
    ),
    "WindowShuffleIterDataset: filtered": lambda kit: WindowShuffleIterDataset(
        kit.stream(40).filter(is_not_third), window_size=5, seed=6
    ).batch(3),
    "ZipIterDataset": lambda kit: ZipIterDataset([kit.stream(15), kit.stream(15).map(double)]),
    "ZipIterDataset: not strict": lambda kit: ZipIterDataset(
        [kit.stream(30).filter(is_not_third), kit.stream(15)], strict=False
    ).batch(2),
    "IterDataset.mix": lambda kit: IterDataset.mix([kit.stream(9), kit.stream(20)], [1, 2]),
    "IterDataset.mix: by name": lambda kit: IterDataset.mix(
        {"b": kit.stream(14), "a": kit.stream(40).filter(is_not_third)}, {"a": 0.6, "b": 0.4}
    ),
    "IterDataset.mix: of mixes": lambda kit: IterDataset.mix(
        [
            FlatMapIterDataset(kit.stream(15), Copies()),
            IterDataset.mix([kit.stream(9).batch(2), kit.stream(20).batch(3)]),
        ]
    ),
    "IterDataset.mix: of mixes of filtered streams": lambda kit: IterDataset.mix(
        {
            name: IterDataset.mix(
                [kit.stream(size).filter(is_not_third) for size in sizes], on_end="drop"
            )
            for name, sizes in {"a": (9, 20, 14), "b": (25, 9, 16), "c": (30, 18, 12)}.items()
        },
        {"a": 1, "b": 3, "c": 2},
    ),
    "IterDataset.mix: scheduled": lambda kit: IterDataset.mix(
        [kit.stream(9), kit.stream(20).map(double), kit.stream(30).filter(is_not_third)],
        WeightSchedule.linear([(0, [1, 0, 2]), (9, [1, 3, 0]), (15, [0, 1, 1])]),
    ).batch(2),
    "IterDataset.mix: restarted": lambda kit: LimitIterDataset(
        IterDataset.mix(
            {"a": kit.stream(7).random_map(jitter, seed=1), "b": kit.stream(17).filter(is_rare)},
            lambda step: {"a": 2, "b": step % 5},
            on_end="restart",
        ),
        33,
    ),
    "IterDataset.mix: dropped": lambda kit: IterDataset.mix(
        [kit.stream(5), kit.stream(30).filter(is_not_third), kit.stream(0), kit.stream(12)],
        WeightSchedule.steps([(0, [3, 1, 1, 1]), (11, [1, 1, 1, 4])]),
        on_end="drop",
    ),
    "IterDataset.mix: dropped, of fixed weights": lambda kit: IterDataset.mix(
        {"a": kit.stream(5), "b": kit.stream(14).map(double)}, {"a": 2, "b": 1}, on_end="drop"
    ).map_with_index(with_index),
    "IterDataset.mix: shuffled": lambda kit: (
        IterDataset.mix([kit.stream(14), kit.stream(25).filter(is_rare)], [1, 2], on_end="drop")
        .shuffle(6, seed=2)
        .map(double)
    ),
    "IterDataset.mix: in windows": lambda kit: WindowShuffleIterDataset(
        IterDataset.mix([kit.stream(9), kit.stream(20)]).windows(3).unbatch(),
        window_size=5,
        seed=3,
    ),
    "IterDataset.mix: batches again": lambda kit: (
        RebatchIterDataset(
            IterDataset.mix([kit.stream(9).batch(2), kit.stream(20).batch(3)], [1, 3]), 4
        )
        .map(double)
        .unbatch()
        .filter(is_not_third)
    ),
    "IterDataset.concatenate": lambda kit: IterDataset.concatenate(
        [kit.stream(9).filter(is_not_third), kit.stream(0), kit.stream(7).map(double)]
    ),
    "IterDataset.concat": lambda kit: (
        kit.stream(11).filter(is_rare).concat(kit.source(6), kit.stream(3)).batch(4)
    ),
    "IterDataset.interleave": lambda kit: kit.stream(4).interleave(
        kit.source(0), kit.stream(9).map(double), cycle_length=2
    ),
    "ThreadPrefetchIterDataset": lambda kit: ThreadPrefetchIterDataset(
        kit.stream(25).map(double), prefetch_buffer_size=4
    ),
    "ThreadPrefetchIterDataset: in between": lambda kit: (
        ThreadPrefetchIterDataset(kit.stream(50).filter(is_not_third), prefetch_buffer_size=7)
        .batch(3)
        .map(double)
    ),
    "ThreadPrefetchIterDataset: filtered": lambda kit: ThreadPrefetchIterDataset(
        kit.stream(50).filter(is_rare), prefetch_buffer_size=100
    ),
    "ThreadPrefetchIterDataset: without a buffer": lambda kit: ThreadPrefetchIterDataset(
        kit.stream(12), prefetch_buffer_size=0
    ),
    # Streams that make new elements of several.
    "FirstFitPackIterDataset": lambda kit: FirstFitPackIterDataset(
        kit.stream(40).map(ragged),
        length_struct={"id": 7, "pair": 4},
        num_packing_bins=3,
        shuffle_bins=False,
    ),
    "FirstFitPackIterDataset: shuffled": lambda kit: FirstFitPackIterDataset(
        kit.stream(40).filter(is_not_third).map(ragged),
        length_struct={"id": 7},
        num_packing_bins=4,
        seed=3,
        meta_features=["pair"],
        max_sequences_per_bin=2,
    ),
    "BestFitPackIterDataset": lambda kit: BestFitPackIterDataset(
        kit.stream(40).map(ragged),
        length_struct={"id": 8, "pair": 5},
        num_packing_bins=4,
        pack_alignment_struct={"id": 2, "pair": 1},
        padding_struct={"id": -1, "pair": None},
    ),
    "BestFitPackIterDataset: batches": lambda kit: (
        BestFitPackIterDataset(
            kit.stream(60).filter(is_not_third).map(ragged),
            length_struct={"id": 9},
            num_packing_bins=3,
        )
        .filter(lambda row: row["id"][0] % 2)
        .batch(2)
    ),
    "ConcatThenSplitIterDataset": lambda kit: ConcatThenSplitIterDataset(
        kit.stream(30).map(ragged), length_struct={"id": 4, "pair": 3}
    ),
    "ConcatThenSplitIterDataset: whole rows": lambda kit: ConcatThenSplitIterDataset(
        kit.stream(50).filter(is_not_third).map(ragged),
        length_struct={"id": 4, "pair": 8},
        meta_features=["pair"],
        split_full_length_features=False,
        bos_handling=BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS,
        bos_features=["id"],
        bos_token_id=-1,
    ),
    "RebatchIterDataset": lambda kit: RebatchIterDataset(kit.stream(23).batch(4), 3),
    "RebatchIterDataset: larger": lambda kit: RebatchIterDataset(
        kit.stream(50).filter(is_not_third).batch(2).map(double), 7, drop_remainder=True
    ),
    "RepeatIterDataset": lambda kit: RepeatIterDataset(kit.stream(7).map(double), 3),
    "RepeatIterDataset: filtered": lambda kit: RepeatIterDataset(
        FlatMapIterDataset(kit.stream(11).filter(is_not_third), Copies()), 2
    ).batch(4),
    "RepeatIterDataset: packed": lambda kit: RepeatIterDataset(
        ConcatThenSplitIterDataset(kit.stream(9).map(ragged), length_struct={"id": 4, "pair": 3}),
        2,
    ),
    "LimitIterDataset": lambda kit: LimitIterDataset(kit.stream(30).filter(is_not_third), 13),
    "LimitIterDataset: of a repetition": lambda kit: LimitIterDataset(
        RepeatIterDataset(kit.stream(7).random_map(jitter, seed=1)), 31
    ),
    "CacheIterDataset": lambda kit: CacheIterDataset(kit.stream(17).map(double)),
    "CacheIterDataset: repeated": lambda kit: RepeatIterDataset(
        CacheIterDataset(kit.stream(13).filter(is_not_third)), 3
    ).batch(3),
    "IterDataset.pack": lambda kit: kit.stream(40).map(ragged).pack({"id": 7, "pair": 4}, bins=3),
    "IterDataset.pack: too long": lambda kit: (
        kit.stream(40)
        .filter(is_not_third)
        .map(ragged)
        .pack({"id": 3}, strategy="best_fit", bins=2, seed=4, too_long="split")
    ),
    "IterDataset.pack: end to end": lambda kit: (
        kit.stream(30).map(ragged).pack({"id": 4}, strategy="concat_then_split", bos_token_id=-1)
    ),
    "IterDataset.batch_by_tokens": lambda kit: (
        kit.stream(40).map(ragged).batch_by_tokens(14, length="id", lengths_as="lengths")
    ),
    "IterDataset.batch_by_tokens: filtered": lambda kit: (
        kit.stream(50)
        .filter(is_not_third)
        .map(ragged)
        .batch_by_tokens(
            16, length=size_of_id, pad_to_multiple_of=2, max_rows=3, drop_remainder=True
        )
        .map(ids_in_rows)
    ),
    "IterDataset.bucket_by_length": lambda kit: (
        kit.stream(40).map(ragged).bucket_by_length([2, 4, 5], [3, 2, 2], length="id", window=13)
    ),
    "IterDataset.bucket_by_length: filtered": lambda kit: (
        kit.stream(50)
        .filter(is_not_third)
        .map(ragged)
        .bucket_by_length(
            [2, 5],
            max_tokens=10,
            length="id",
            padding={"id": -1, "pair": 0},
            window=9,
            pad_to_boundary=True,
            drop_remainder=True,
        )
    ),
    "IterDataset.cache": lambda kit: RepeatIterDataset(
        kit.stream(13).filter(is_not_third).cache(max_bytes=1500), 2
    ),
    "IterDataset.cache: on disk": lambda kit: cached_on_disk(kit, a_new_file()),
    "InterleaveIterDataset": lambda kit: InterleaveIterDataset(
        [kit.stream(5), kit.source(0), kit.source(9).map(double), kit.stream(2), kit.stream(6)],
        cycle_length=2,
    ),
    "InterleaveIterDataset: filtered": lambda kit: InterleaveIterDataset(
        [kit.stream(30).filter(is_not_third), kit.stream(40).filter(is_rare), kit.stream(8)],
        cycle_length=3,
    ).batch(2),
    "InterleaveIterDataset: made by a map": lambda kit: InterleaveIterDataset(
        kit.source(11).map(lambda element: MapDataset.range(int(element["id"]) % 4)),
        cycle_length=3,
    ),
    "multithread_prefetch": lambda kit: multithread_prefetch(
        kit.stream(29).filter(is_not_third).random_map(jitter, seed=2).batch(2), 3, 2
    ),
    "MapDataset.lanes": lambda kit: (
        kit.source(40).lanes(4, read_options=kit.read).filter(is_not_third).batch(4)
    ),
    "MapDataset.lanes: packed": lambda kit: FirstFitPackIterDataset(
        kit.source(60).lanes(2, read_options=kit.read).filter(is_not_third).map(ragged),
        length_struct={"id": 7},
        num_packing_bins=3,
    ).batch(4),
    "WithOptionsIterDataset": lambda kit: WithOptionsIterDataset(
        kit.stream(40).filter(is_rare), _SKIP_HALF
    ),
    "IterDataset.mp_prefetch": lambda kit: kit.stream(9).mp_prefetch(),
    "IterDataset.prefetch": lambda kit: kit.stream(9).prefetch(None),
    "IterDataset.apply": lambda kit: (
        kit.stream(25)
        .seed(1)
        .apply([DoubleColumns(), Jitter(), NotThird(), Copies(), WithIndex(), transforms.Batch(2)])
    ),
    "IterDataset.pipe": lambda kit: kit.stream(9).pipe(lambda ds: ds.map(double)),
    "IterDataset: subclass": lambda kit: Pairs(kit.stream(20)).filter(is_not_third),
    "IterDataset: subclass in the middle": lambda kit: (
        Pairs(kit.stream(20).map(double)).batch(3).map(double_columns_with_last)
    ),
    "IterDataset: a long chain": lambda kit: (
        WindowShuffleIterDataset(
            FlatMapIterDataset(
                kit.source(20)
                .shuffle(seed=3)
                .repeat(2)
                .to_iter_dataset(kit.read)
                .filter(is_not_third),
                Copies(),
            ),
            window_size=7,
            seed=1,
        )
        .random_map(jitter, seed=5)
        .batch(4)
    ),
}
PIPELINES = {**BY_POSITION, **_STREAMS}
RANDOM_ACCESS = list(BY_POSITION)
_VARIANTS = [name for name in PIPELINES if ":" in name]
Way = TypeVar("Way")


def by_turns(name: str, ways: Iterable[Way]) -> list[Way]:
    """Of the ways in which a contract is tried, those for a pipeline.

    All of them for each operation, so that each operation meets each way. A variant of one has a
    single way, the next variant the next; `make test-all` tries them all.
    """
    ways = list(ways)
    if THOROUGH or ":" not in name:
        return ways
    return [ways[_VARIANTS.index(name) % len(ways)]]


def stream_of(name: str, kit: Kit) -> IterDataset[Any]:
    """The pipeline as a stream, read as the kit says."""
    ds = PIPELINES[name](kit)
    return ds.to_iter_dataset(kit.read) if isinstance(ds, MapDataset) else ds


def elements_of(ds: IterDataset[Any]) -> Iterator[Any]:
    with iter(ds) as iterator:
        yield from iterator
