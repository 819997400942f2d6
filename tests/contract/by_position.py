"""Those of the pipelines that can be read by position; `pipelines.py` has the others, and all."""

from bushel import (
    MapDataset,
    transforms,
)
from bushel.experimental import (
    FlatMapMapDataset,
    WindowShuffleMapDataset,
    ZipMapDataset,
)
from tests.contract.kit import Build
from tests.contract.parts import (
    Backwards,
    Copies,
    Double,
    DoubleColumns,
    Jitter,
    NotThird,
    WithIndex,
    double,
    double_columns,
    fail_on_negative,
    fail_on_third,
    ids_of,
    is_not_third,
    is_rare,
    jitter,
    record,
    with_index,
)
from tests.contract.subclasses import Reversed

BY_POSITION: dict[str, Build] = {
    # Beginnings.
    "MapDataset.source": lambda kit: kit.source(23),
    "MapDataset.range": lambda kit: MapDataset.range(3, 40, 2),
    "MapDataset.range: backwards": lambda kit: MapDataset.range(20, 3, -3),
    "MapDataset.concatenate": lambda kit: MapDataset.concatenate(
        [kit.source(5), kit.source(9).map(double), kit.source(4)]
    ),
    "MapDataset.concatenate: batches": lambda kit: MapDataset.concatenate(
        [kit.source(5), kit.source(9)]
    ).batch(3),
    "MapDataset.mix": lambda kit: MapDataset.mix([kit.source(12), kit.source(8).shuffle(seed=4)]),
    "MapDataset.mix: weights": lambda kit: MapDataset.mix(
        [kit.source(12), kit.source(30), kit.source(7).map(double)], [0.3, 0.5, 0.2]
    ).batch(4),
    "MapDataset.select_from_datasets": lambda kit: MapDataset.select_from_datasets(
        [kit.source(9), kit.source(8).map(double)], Backwards()
    ),
    "MapDataset: subclass": lambda kit: Reversed(kit.source(11).shuffle(seed=1)).map(double),
    # Orders.
    "MapDataset.slice": lambda kit: kit.source(30).slice(slice(3, 25, 2)),
    "MapDataset.slice: backwards": lambda kit: kit.source(20)[15:2:-3].batch(2),
    "MapDataset.slice: a shard": lambda kit: kit.source(23).shuffle(seed=3)[1::3].map(double),
    "MapDataset.slice: a run": lambda kit: kit.source(20)[5:15].map(double).repeat(2),
    "MapDataset.shuffle": lambda kit: kit.source(29).shuffle(seed=11),
    "MapDataset.shuffle: twice": lambda kit: kit.source(21).seed(5).shuffle().shuffle().batch(4),
    "MapDataset.shuffle: of batches": lambda kit: kit.source(26).batch(3).shuffle(seed=2),
    "MapDataset.repeat": lambda kit: kit.source(7).shuffle(seed=1).repeat(4),
    "MapDataset.repeat: the same": lambda kit: (
        kit.source(9).shuffle(seed=1).random_map(jitter, seed=2).repeat(3, reseed_each_epoch=False)
    ),
    "MapDataset.repeat: batches": lambda kit: kit.source(7).batch(3).repeat(4).map(double),
    "MapDataset.repeat: for ever": lambda kit: kit.source(7).shuffle(seed=1).repeat()[:40],
    "WindowShuffleMapDataset": lambda kit: WindowShuffleMapDataset(
        kit.source(26), window_size=10, seed=3
    ),
    # Steps by position.
    "MapDataset.map": lambda kit: kit.source(19).map(double),
    "MapDataset.map_with_index": lambda kit: (
        kit.source(19).shuffle(seed=2).map_with_index(with_index)
    ),
    "MapDataset.map_batches": lambda kit: kit.source(19).map_batches(double_columns),
    "MapDataset.map_batches: after a filter": lambda kit: (
        kit.source(25).filter(is_not_third).map_batches(double_columns)
    ),
    "MapDataset.map_batches: between batches": lambda kit: (
        kit.source(25).batch(2).map_batches(double_columns).batch(3, drop_remainder=True)
    ),
    "MapDataset.random_map": lambda kit: kit.source(19).random_map(jitter, seed=3),
    "MapDataset.seed": lambda kit: kit.source(17).seed(9).shuffle().random_map(jitter).repeat(2),
    "MapDataset.on_error": lambda kit: kit.source(31).map(fail_on_third).on_error("skip"),
    "MapDataset.on_error: replaced, in batches, shuffled": lambda kit: (
        kit.source(31)
        .shuffle(seed=3)
        .map(fail_on_third)
        .on_error("replace", replacement=record(-1))
        .shuffle(seed=4)
        .batch(3)
    ),
    "MapDataset.on_error: two": lambda kit: (
        kit.source(31)
        .map(fail_on_third)
        .on_error("replace", replacement=record(-1))
        .map(fail_on_negative)
        .on_error("skip")
        .map_with_index(with_index)
    ),
    "MapDataset.filter": lambda kit: kit.source(31).filter(is_not_third).map(double),
    "MapDataset.filter: nearly all": lambda kit: kit.source(60).filter(is_rare),
    "MapDataset.filter: all": lambda kit: kit.source(12).filter(lambda element: False),
    "MapDataset.filter: shuffled": lambda kit: (
        kit.source(31).filter(is_not_third).shuffle(seed=1).map_with_index(with_index)
    ),
    "FlatMapMapDataset": lambda kit: FlatMapMapDataset(kit.source(13), Copies()),
    "FlatMapMapDataset: shuffled": lambda kit: FlatMapMapDataset(kit.source(9), Copies()).shuffle(
        seed=4
    ),
    "MapDataset.batch": lambda kit: kit.source(22).batch(4),
    "MapDataset.batch: drop_remainder": lambda kit: (
        kit.source(22).shuffle(seed=1).batch(4, drop_remainder=True)
    ),
    "MapDataset.batch: batch_fn": lambda kit: kit.source(22).map(double).batch(5, batch_fn=ids_of),
    "MapDataset.batch: of batches": lambda kit: kit.source(40).batch(2).batch(4),
    # Parts by position.
    "MapDataset.take": lambda kit: kit.source(20).shuffle(seed=2).take(9).repeat(2),
    "MapDataset.skip": lambda kit: kit.source(20).skip(13).map(double),
    "MapDataset.enumerate": lambda kit: kit.source(14).shuffle(seed=1).enumerate(5),
    "MapDataset.enumerate: some dropped": lambda kit: (
        kit.source(14).filter(is_not_third).enumerate()
    ),
    "MapDataset.unbatch": lambda kit: kit.source(22).batch(4).map(double).unbatch(),
    "MapDataset.unbatch: shuffled": lambda kit: (
        kit.source(22).batch(4, drop_remainder=True).shuffle(seed=5).unbatch().batch(3)
    ),
    "MapDataset.windows": lambda kit: kit.source(15).windows(4, stride=3),
    "MapDataset.windows: a shorter one": lambda kit: (
        kit.source(17).shuffle(seed=1).windows(5, stride=7, drop_remainder=False).repeat(2)
    ),
    "MapDataset.compact": lambda kit: kit.source(31).filter(is_not_third).compact(),
    "MapDataset.compact: then batch": lambda kit: (
        kit.source(40).filter(is_not_third).compact().shuffle(seed=3).batch(4).repeat(2)
    ),
    "MapDataset.compact: shuffled": lambda kit: (
        kit.source(25).shuffle(seed=1).filter(is_not_third).map(double).compact().repeat(2)
    ),
    "ZipMapDataset": lambda kit: ZipMapDataset(
        [kit.source(14), kit.source(14).shuffle(seed=1), MapDataset.range(14)]
    ),
    "ZipMapDataset: columns": lambda kit: ZipMapDataset([kit.source(14), kit.source(14)]).batch(4),
    "MapDataset.apply": lambda kit: kit.source(25).apply(
        [Double(), WithIndex(), transforms.Batch(3)]
    ),
    "MapDataset.apply: each kind": lambda kit: (
        kit.source(25).seed(1).apply([DoubleColumns(), Jitter(), NotThird(), Copies()])
    ),
    "MapDataset.pipe": lambda kit: kit.source(9).pipe(lambda ds, n: ds.repeat(n), 2),
}
