"""Methods of `MapDataset` and of `IterDataset`: `apply`, `pipe`, `on_error`, `write`, `explain`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, SupportsIndex, TypeVar

from bushel.core.arguments import meant
from bushel.core.frozen import written_behind
from bushel.core.naming import steps_in_line
from bushel.core.node import Guard, Node, chain_of
from bushel.core.options import DatasetOptions, OnError
from bushel.core.places import OptionsNode
from bushel.dataset.grain_stats import NoStats
from bushel.on_error.policy import guarded
from bushel.transforms import base as transforms

if TYPE_CHECKING:
    # Elements of which nothing is known are Any: those of `batch(8)`, say. Type checkers
    # would ask the user for an annotation otherwise. They know this module without it.
    import os

    import typing_extensions

    from bushel.core.ray_options import RayOptions
    from bushel.deliver.iterator import DatasetIterator
    from bushel.sources.written.manifest import Manifest
    from bushel.watch.explanation import Explanation

    T = typing_extensions.TypeVar("T", default=Any)
    S = typing_extensions.TypeVar("S", default=Any)
else:
    T = TypeVar("T")
    S = TypeVar("S")
Self = TypeVar("Self", bound="Dataset[Any]")


class Dataset(Generic[T]):
    """The base class of random-access datasets and streams."""

    _parents: tuple[Dataset[Any], ...]
    # For datasets of the user's that were written for Grain.
    _stats = NoStats()

    def __init__(self, parents: Dataset[Any] | Sequence[Dataset[Any]] = ()) -> None:
        self._parents = (parents,) if isinstance(parents, Dataset) else tuple(parents)

    @property
    def parents(self) -> tuple[Dataset[Any], ...]:
        """The datasets that this one reads from."""
        return self._parents

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return written_behind(self, super().__reduce_ex__(protocol), _parents_of)

    @abstractmethod
    def _own_node(self) -> Node:
        """The step that this dataset ends with."""

    @abstractmethod
    def _stream_node(self) -> Node:
        """The same of the stream that it is when one iterates over it."""

    @abstractmethod
    def _then(self, node: Node) -> Any:
        """A dataset of the same kind that ends with another step."""

    @property
    def _parent(self) -> Any:
        assert len(self._parents) == 1, self._parents
        return self._parents[0]

    def __getattr__(self, name: str) -> Any:
        # Only for what is not there.
        raise AttributeError(self._no_attribute(name), name=name, obj=self)

    def _no_attribute(self, name: str) -> str:
        text = f"{self._kind} has no attribute {name!r}."
        if name.startswith("_"):
            return text
        if hasattr(self._other_kind(), name):
            return f"{text} {self._way_to_other.format(name)}"
        return text + meant(name, dir(type(self)))

    def __repr__(self) -> str:
        parents = ", ".join(map(repr, _parents_of(self)))
        return f"{type(self).__name__}({parents})"

    # What users call it; and how to come to a method that only the other kind of dataset has.
    _kind: ClassVar[str] = "a dataset"
    # How many steps iterating adds at the end.
    _unwritten_steps: ClassVar[int] = 0
    _way_to_other: ClassVar[str] = ""

    @classmethod
    def _other_kind(cls) -> type | None:
        """Streams for random-access datasets, and the reverse."""
        return None

    def explain(self) -> Explanation:
        """Explains the steps, where each of them runs, and gives advice; reads no data.

        `print` shows it as a table, the last step first; `to_dict()` gives plain values.

        >>> from bushel import MapDataset
        >>> print(MapDataset.range(100).map(abs).to_iter_dataset().batch(8).explain())
        #  step               elements  runs                 kind    note
        3  batch(8)                 13  here                 Fold
        2  to_iter_dataset()       100  here, <= 16 threads  Place
        1  map(abs)                100  here, <= 16 threads  Each
        0  range(0, 100, 1)        100  here, <= 16 threads  Source
        """
        from bushel.watch.explain import explain_node  # Only for those who look.

        return explain_node(self._stream_node(), type(self).__name__, self._unwritten_steps)

    def _iterate_with(self, options: DatasetOptions) -> DatasetIterator[Any]:
        """Makes an iterator under further options."""
        from bushel.deliver.open import iterate  # To build a dataset takes none of it.

        return iterate(OptionsNode(self._stream_node(), options))

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def pipe(self, func: Callable[..., S], /, *args: Any, **kwargs: Any) -> S:
        """Calls `func(self, ...)`, for chaining functions that are not methods.

        >>> from bushel import MapDataset
        >>> MapDataset.range(3).pipe(lambda ds, n: ds.repeat(n), 2).pipe(list)
        [0, 1, 2, 0, 1, 2]
        """
        return func(self, *args, **kwargs)

    def apply(self: Self, transformations: Any) -> Self:
        """Applies one transformation object, or a sequence of them in order.

        >>> from bushel import MapDataset
        >>> list(MapDataset.range(5).apply([transforms.Batch(2)]))
        [array([0, 1]), array([2, 3]), array([4])]
        """
        if not isinstance(transformations, (list, tuple)):
            transformations = (transformations,)
        ds: Any = self
        for transformation in transformations:
            ds = _apply_one(ds, transformation)
        return ds  # type: ignore[no-any-return]

    def on_error(
        self: Self,
        policy: str,
        *,
        replacement: Any = None,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
        budget: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
    ) -> Self:
        """Says what happens to elements for which the source, or a function before this, fails.

        "raise" raises, as without `on_error`; "skip" drops them, as a filter does; "replace" puts
        another element in their place, so that all elements keep their positions.

        >>> from bushel import MapDataset
        >>> texts = MapDataset.source(["1", "2", "three", "4"]).map(int)
        >>> list(texts.on_error("skip"))
        [1, 2, 4]
        >>> list(texts.on_error("replace", replacement=0).batch(2))
        [array([1, 2]), array([0, 4])]

        A stream counts bad records, and its states have the counts. So a budget is used up at
        the same record for any number of workers, resumed or not. Elements accessed by position
        are not counted. The logger "bushel" reports the first few bad records.

        Args:
          policy: "raise", "skip" or "replace".
          replacement: the element for "replace", or a function from the exception to the element.
          errors: which exceptions mean that a record is bad; others are raised.
          budget: with more bad records than this, `BadRecordsError` is raised.
          quarantine: the path of a file that gets a line of JSON for each bad record, once:
            its file, record and offset where they are known, the operation, and the reason.
        """
        options = OnError(policy, replacement, errors, budget, quarantine)
        node = guarded(self._own_node(), options)
        return self._then(node) if isinstance(node, Guard) else self

    def write(
        self,
        to: str | os.PathLike[str],
        *,
        format: str | None = None,
        shards: int | None = None,
        shard_records: int | None = None,
        workers: int | RayOptions | None = None,
        on_error: str = "raise",
        overwrite: bool = False,
        json_fields: Iterable[str] = (),
        origins: bool | str = True,
        progress: bool | None = None,
    ) -> Manifest:
        """Writes the elements to shards, which `bushel.open` reads, and returns a summary.

        Several processes write the shards of a random-access dataset, in any order, from equal
        ranges of its positions; the shards of a stream are written one after the other. Their
        bytes do not depend on the processes. Each shard is written atomically: after a kill, the
        same call writes the missing shards. The manifest is written after the last shard.

        >>> import tempfile
        >>> import bushel
        >>> folder = tempfile.TemporaryDirectory()
        >>> squares = bushel.MapDataset.range(10).map(lambda x: {"x": x, "square": x * x})
        >>> written = squares.write(f"{folder.name}/squares-*.jsonl", shards=2, workers=0)
        >>> written.records, len(written.shards)
        (10, 2)
        >>> bushel.open(folder.name)[3]
        {'x': 3, 'square': 9}
        >>> folder.cleanup()

        Args:
          to: the path of the shards, with a star for their number, local or in an object store
            (s3://, gs://, az://); without a star, one file. Or a folder, with `format`.
          format: "arrayrecord", "tfrecord", "parquet", "arrow", "tar", "jsonl" or "tokens"; by
            default, the format of the file name ending.
          shards: the number of shards; by default, for about 128 MiB each, with a small minimum.
          shard_records: instead of `shards`: the number of elements that make a shard.
          workers: the number of processes; by default, the number of cores. 0 for this process,
            and `bushel.RayOptions(...)` for workers on a Ray cluster, which must have access to
            the path.
          on_error: "skip" leaves out elements that cannot be made or written, and counts them.
          overwrite: whether to remove first what another pipeline wrote to the path.
          json_fields: names of fields whose type differs from element to element, or that
            are None in some elements: they are written as JSON.
          origins: whether to store the records that each element was made from. In a stream
            after a filter, they depend on the filter: "all" calls its functions a second time
            to find them, in this process.
          progress: whether to show the progress; by default, in a terminal and in a notebook.
        """
        from bushel.write.write_job import write  # It stands above, and runs what is built here.

        return write(
            self,
            to,
            format=format,
            shards=shards,
            shard_records=shard_records,
            workers=workers,
            on_error=on_error,
            overwrite=overwrite,
            json_fields=json_fields,
            origins=origins,
            progress=progress,
        )


def _apply_one(ds: Any, transformation: Any) -> Any:
    if isinstance(transformation, transforms.Batch):
        return ds.batch(
            transformation.batch_size,
            drop_remainder=transformation.drop_remainder,
            batch_fn=transformation.batch_fn,
        )
    for kind, method in _METHODS:
        if isinstance(transformation, kind):
            return method(ds, transformation)
    if isinstance(transformation, type):
        name = transformation.__name__
        raise TypeError(f"`apply` takes objects, and got the class {name}: write `{name}(...)`.")
    raise NotImplementedError(
        f"`apply` takes objects of the classes in `bushel.transforms`, and got "
        f"{transformation!r}. For a function, write `ds.map(function)`."
    )


_METHODS: tuple[tuple[type, Callable[[Any, Any], Any]], ...] = (
    (transforms.Map, lambda ds, transform: ds.map(transform)),
    (transforms.RandomMap, lambda ds, transform: ds.random_map(transform)),
    (transforms.MapWithIndex, lambda ds, transform: ds.map_with_index(transform)),
    (transforms.FlatMap, lambda ds, transform: ds._flat_map(transform)),
    (transforms.Filter, lambda ds, transform: ds.filter(transform)),
    (transforms.MapBatches, lambda ds, transform: ds.map_batches(transform)),
)


# More parts of a mixture are counted, where a pipeline is shown in one line; and mixtures within so
# many others have their parts left out.
_PARTS_SHOWN, _LEVELS_SHOWN = 8, 3


def shown(node: Node, level: int = 0) -> str:
    """Shows a pipeline, as one would write it."""
    *steps, first = chain_of(node)
    labels, before = [first.label], ""
    if first.inputs:
        before = "…" if level == _LEVELS_SHOWN else _parts_shown(first.inputs, level + 1)
        before = f"[{before}]" if before and first.label else before
    labels += [step.label for step in reversed(steps)]
    return " -> ".join(filter(None, [before, steps_in_line(list(filter(None, labels)))]))


def _parts_shown(parts: Sequence[Node], level: int) -> str:
    more = len(parts) - _PARTS_SHOWN
    named = ", ".join(shown(part, level) for part in parts[:_PARTS_SHOWN])
    return f"{named}, … {more:,} more" if more > 0 else named


def _parents_of(ds: Dataset[Any]) -> Sequence[Dataset[Any]]:
    return getattr(ds, "_parents", ())  # Those of a user's own may have none.
