"""Makes datasets of Hugging Face's `datasets` from a pipeline: the only file that imports it."""

from collections.abc import Iterator
from typing import Any

import cloudpickle

from bushel.core.arguments import whole
from bushel.dataset import IterDataset, MapDataset
from bushel.deliver.accelerate_job import as_it_is
from bushel.errors import MissingPackageError, PlanError
from bushel.watch.element_counts import ENDLESS

# A stretch of so many elements is a shard: as many are made again at the most where an iteration
# goes on, and a list of stretches is short.
_STRETCH = 256
# So many are evaluated together.
_TOGETHER = 64


def _datasets() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingPackageError(
            "`bushel.huggingface` needs Hugging Face's datasets", "huggingface"
        ) from error
    return datasets


def dataset(ds: Any, *, features: Any = None, **options: Any) -> Any:
    """Makes a `datasets.Dataset` of the elements of a finite dataset, which are dicts.

    One epoch of it is evaluated, and kept as an Arrow file in the cache of `datasets`, which is
    taken again if the pipeline is the same. (For one's own files: `ds.write("out/*.parquet")`.)

    >>> import bushel, tempfile
    >>> ds = bushel.MapDataset.range(4).map(lambda i: {"id": i, "name": f"n{i}"})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows = dataset(ds, cache_dir=folder)
    ...     rows[1]
    {'id': 1, 'name': 'n1'}

    Args:
      ds: a `MapDataset` or an `IterDataset`, of elements that are dicts, not batches.
      features: their types, `datasets.Features`; by default they are told by the elements.
      options: what else `datasets.Dataset.from_generator` takes.
    """
    _check(ds, endless=False)
    made = _datasets().Dataset.from_generator(_AllOfIt(ds), features=features, **options)
    return made


def iterable_dataset(ds: Any, *, features: Any = None, elements_per_shard: int = _STRETCH) -> Any:
    """Makes a `datasets.IterableDataset`, which evaluates elements when they are asked for.

    Of a random-access dataset each stretch of elements is a shard: workers of torch and ranks
    (`datasets.distributed.split_dataset_by_node`) share them, and `load_state_dict` goes on with
    at most one stretch evaluated again. A stream is one shard, of which all elements up to the
    position are evaluated again.

    >>> import bushel
    >>> ds = bushel.MapDataset.range(1000).map(lambda i: {"id": i})
    >>> rows = iterable_dataset(ds)
    >>> rows.num_shards, next(iter(rows))
    (4, {'id': 0})

    Args:
      ds: a `MapDataset` or an `IterDataset`, of elements that are dicts, not batches.
      features: their types, `datasets.Features`.
      elements_per_shard: how long a stretch is.
    """
    _check(ds, endless=True)
    size = whole(elements_per_shard, "elements_per_shard")
    if size <= 0:
        raise PlanError(f"`elements_per_shard` must be positive, and is {size}.")
    make = _datasets().IterableDataset.from_generator
    if isinstance(ds, MapDataset) and len(ds) < ENDLESS:
        # (Lists are what `datasets` deals out.)
        starts = [[start, min(start + size, len(ds))] for start in range(0, len(ds), size)]
        if starts:
            return make(_InStretches(ds), features=features, gen_kwargs={"stretches": starts})
    return make(_AllOfIt(ds), features=features)


def _check(ds: Any, endless: bool) -> None:
    if not isinstance(ds, (MapDataset, IterDataset)):
        raise TypeError(
            "this takes a MapDataset or an IterDataset of bushel's, and got a "
            f"{type(ds).__module__}.{type(ds).__name__}."
        )
    if not endless and isinstance(ds, MapDataset) and len(ds) >= ENDLESS:
        raise PlanError(
            "a `datasets.Dataset` has all elements, and this dataset is repeated for ever. Leave "
            "out `repeat()`, or use `bushel.huggingface.iterable_dataset`."
        )


class _OfPipeline:
    """Goes to other processes with whatever functions the pipeline has."""

    def __init__(self, ds: Any) -> None:
        self._ds = ds

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (type(self), cloudpickle.dumps(self._ds))


def _unpacked(kind: type[_OfPipeline], pickled: bytes) -> _OfPipeline:
    return kind(cloudpickle.loads(pickled))


class _AllOfIt(_OfPipeline):
    """Iterates over all elements."""

    def __call__(self) -> Iterator[dict[str, Any]]:
        with as_it_is():  # What is shared by processes is up to `datasets`.
            iterator = iter(self._ds)
        with iterator:
            for element in iterator:
                yield _row(element)


class _InStretches(_OfPipeline):
    """The same for stretches of a random-access dataset."""

    def __call__(self, stretches: list[list[int]]) -> Iterator[dict[str, Any]]:
        for start, stop in stretches:
            for first in range(start, stop, _TOGETHER):
                for element in self._ds.__getitems__(range(first, min(first + _TOGETHER, stop))):
                    if element is not None:  # A filter left it out.
                        yield _row(element)


def _row(element: Any) -> dict[str, Any]:
    if not isinstance(element, dict):
        raise TypeError(
            f"a row of `datasets` is a dict of columns, and an element is a "
            f"{type(element).__name__}: {element!r:.100}. Make it one in a `map`."
        )
    return element
