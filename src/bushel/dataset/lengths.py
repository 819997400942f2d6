"""Sequences of many lengths: packed into rows, batched by tokens, sorted into buckets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from bushel.batch.buckets import BucketNode
from bushel.batch.lengths import Length, LengthOf
from bushel.batch.only import only_step
from bushel.batch.pack_options import names_of, pack_node, packing_of
from bushel.batch.packing import Packing
from bushel.batch.pad import padding_of
from bushel.batch.split import SplitNode, check_bos, check_lengths
from bushel.batch.tokens import TokenBatchNode
from bushel.batch.too_long import Fits, Pieces, Truncated
from bushel.core.node import Node
from bushel.dataset.base import Dataset, T
from bushel.dataset.steps import filter_step, flat_map_step, map_step
from bushel.errors import PlanError

if TYPE_CHECKING:
    from bushel.dataset.stream import IterDataset

_STRATEGIES = ("first_fit", "best_fit", "concat_then_split")
_TOO_LONG: dict[str, Callable[[Node, dict[str, int]], Node]] = {
    "error": lambda parent, lengths: parent,
    "truncate": lambda parent, lengths: map_step(parent, Truncated(lengths)),
    "split": lambda parent, lengths: flat_map_step(parent, Pieces(lengths)),
    "drop": lambda parent, lengths: filter_step(parent, Fits(lengths)),
}


class Lengths(Dataset[T]):
    """Methods of a stream whose elements have many lengths."""

    if TYPE_CHECKING:

        def _then(self, node: Node) -> IterDataset[Any]: ...

    def pack(
        self,
        lengths: Mapping[str, Any],
        *,
        strategy: str = "first_fit",
        bins: int | None = None,
        seed: int | None = None,
        meta_features: Sequence[str] = (),
        alignment: Any = None,
        padding: Any = None,
        max_sequences: int | None = None,
        too_long: str | None = None,
        bos_token_id: int | None = None,
    ) -> IterDataset[Any]:
        """Lays sequences side by side in rows of fixed lengths.

        Rows have, beside each feature, which of their sequences a cell belongs to
        (`..._segment_ids`, from 1; 0 is padding) and its place in it (`..._positions`).

        >>> import numpy as np
        >>> from bushel import MapDataset
        >>> documents = [{"text": np.full(n, n)} for n in (3, 2, 2, 1)]
        >>> stream = MapDataset.source(documents).to_iter_dataset()
        >>> for row in stream.pack({"text": 4}):
        ...     row["text"].tolist(), row["text_segment_ids"].tolist()
        ([3, 3, 3, 1], [1, 1, 1, 2])
        ([2, 2, 2, 2], [1, 1, 2, 2])
        >>> [row["text"].tolist() for row in stream.pack({"text": 5}, strategy="concat_then_split")]
        [[3, 3, 3, 2, 2], [2, 2, 1, 0, 0]]

        Args:
          lengths: the length of a row for each feature. Other features are left out.
          strategy: where a sequence goes: into the first of the open rows that has room
            ("first_fit"), or the one where it leaves least room ("best_fit"); or all of them end
            to end, cut where a row is full ("concat_then_split").
          bins: how many rows are open at a time; 64.
          seed: rows that are closed together come in an order drawn from it. Without one they
            come as they were opened.
          meta_features: features without segment ids and positions. Those that have no length
            become a list of the values of a row's elements.
          alignment: sequences begin at multiples of these, for each feature.
          padding: what fills the cells of no sequence, for each feature, instead of zeros.
          max_sequences: at most so many sequences in a row.
          too_long: what to do about an element with a sequence longer than its row: "error",
            the default; "truncate", which keeps the beginning; "split" into elements that fit;
            "drop".
          bos_token_id: for "concat_then_split": the first token of each piece in a row becomes
            this one, in all features that are not `meta_features`.
        """
        if strategy not in _STRATEGIES:
            raise PlanError(
                f"`pack`: the strategy must be one of {', '.join(_STRATEGIES)}, and is "
                f"{strategy!r}."
            )
        parent = self._own_node()
        if strategy == "concat_then_split":
            for name, given in (
                ("bins", bins),
                ("seed", seed),
                ("alignment", alignment),
                ("padding", padding),
                ("max_sequences", max_sequences),
                ("too_long", too_long),
            ):
                if given is not None:
                    raise PlanError(
                        f"`pack`: `{name}` has no meaning with strategy='concat_then_split', where "
                        "sequences are laid end to end and cut where a row is full."
                    )
            return self._then(_split_node(parent, lengths, meta_features, bos_token_id))
        if bos_token_id is not None:
            raise PlanError(
                "`pack`: `bos_token_id` is for strategy='concat_then_split', which cuts sequences; "
                f"with {strategy!r} they stay whole, begin-of-sequence tokens included."
            )
        packing = packing_of(
            lengths,
            operator.index(64 if bins is None else bins),
            strategy == "best_fit",
            meta_features,
            alignment,
            padding,
            max_sequences,
        )
        parent = _prepared(parent, packing, "error" if too_long is None else too_long)
        return self._then(pack_node(parent, packing, seed or 0, seed is not None, None))

    def batch_by_tokens(
        self,
        max_tokens: int,
        *,
        length: Length = None,
        pad_to_multiple_of: int = 1,
        padding: Any = 0,
        max_rows: int | None = None,
        drop_remainder: bool = False,
        lengths_as: str | None = None,
    ) -> IterDataset[Any]:
        """Batches as many neighbours as fit into a budget: rows times the longest, padded.

        >>> import numpy as np
        >>> from bushel import MapDataset
        >>> stream = MapDataset.source([2, 3, 1, 5, 1]).map(np.arange).to_iter_dataset()
        >>> for batch in stream.batch_by_tokens(10, padding=-1):
        ...     batch.tolist()
        [[0, 1, -1], [0, 1, 2], [0, -1, -1]]
        [[0, 1, 2, 3, 4], [0, -1, -1, -1, -1]]

        A state counts the batches, rows, tokens and cells so far, exactly: see
        `padding_report`.

        Args:
          max_tokens: at most so many cells in a batch, padding included. An element that is
            longer than that by itself is an error.
          length: the feature whose length counts, or a function of the element. Elements that
            are arrays need none.
          pad_to_multiple_of: the longest sequence is padded to such a multiple, too.
          padding: the value to pad with: one for all arrays of an element, which are padded along
            their first axis; or a dict with a value for each feature that is to be padded, others
            being stacked as they are.
          max_rows: at most so many elements in a batch.
          drop_remainder: leaves out the last batch, unless it is full.
          lengths_as: the name of a feature that batches get: the lengths of their elements.
        """
        budget = _positive("batch_by_tokens", "max_tokens", max_tokens)
        rows = None if max_rows is None else _positive("batch_by_tokens", "max_rows", max_rows)
        node = TokenBatchNode(
            self._own_node(),
            budget,
            LengthOf(_checked(length, "batch_by_tokens"), "batch_by_tokens"),
            padding_of(padding, operator.index(pad_to_multiple_of), "batch_by_tokens"),
            rows,
            bool(drop_remainder),
            lengths_as,
        )
        return self._then(node)

    def bucket_by_length(
        self,
        boundaries: Sequence[int],
        batch_sizes: Sequence[int] | int | None = None,
        *,
        max_tokens: int | None = None,
        length: Length = None,
        pad_to_multiple_of: int = 1,
        pad_to_boundary: bool = False,
        padding: Any = 0,
        window: int = 10_000,
        drop_remainder: bool = False,
        lengths_as: str | None = None,
    ) -> IterDataset[Any]:
        """Batches elements of like lengths: a bucket that is full becomes a batch.

        >>> import numpy as np
        >>> from bushel import MapDataset
        >>> stream = MapDataset.source([2, 7, 1, 5, 3]).map(np.arange).to_iter_dataset()
        >>> for batch in stream.bucket_by_length([4, 8], 2):
        ...     batch.tolist()
        [[0, 1], [0, 0]]
        [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 0, 0]]
        [[0, 1, 2]]

        After `window` elements all buckets are emptied, in their order, full or not. So an
        element waits no longer than that, however rare its length; a state is where the window
        begins and how many of its batches were handed out; and restoring it reads at most one
        window again.

        Args:
          boundaries: the greatest length in each bucket, in increasing order.
          batch_sizes: how many elements make a batch in each bucket; one number for all of them,
            or a number for each, and perhaps one more for elements beyond the last boundary,
            which are an error otherwise.
          max_tokens: instead of `batch_sizes`: as many as fit into so many cells, each padded to
            its bucket's boundary.
          length: the feature whose length counts, or a function of the element. Elements that
            are arrays need none.
          pad_to_multiple_of: the longest sequence is padded to such a multiple, too.
          pad_to_boundary: pads to the bucket's boundary instead of the longest, so that there are
            no more shapes than buckets.
          padding: as for `batch_by_tokens`.
          window: after how many elements buckets are emptied.
          drop_remainder: leaves out the batches that are not full then.
          lengths_as: the name of a feature that batches get: the lengths of their elements.
        """
        edges = tuple(operator.index(edge) for edge in boundaries)
        if not edges or edges[0] < 0 or any(b <= a for a, b in pairwise(edges)):
            raise PlanError(
                "`bucket_by_length`: boundaries must be increasing numbers, at least one, and are "
                f"{list(edges)}."
            )
        pads = padding_of(padding, operator.index(pad_to_multiple_of), "bucket_by_length")
        if (batch_sizes is None) == (max_tokens is None):
            raise PlanError(
                "`bucket_by_length` takes either `batch_sizes` or `max_tokens`, and got "
                f"batch_sizes={batch_sizes!r} and max_tokens={max_tokens!r}."
            )
        if max_tokens is not None:
            sizes = tuple(operator.index(max_tokens) // max(1, pads.up(edge)) for edge in edges)
            if not all(size > 0 for size in sizes):
                raise PlanError(
                    f"`bucket_by_length`: max_tokens={max_tokens} holds not even one element of "
                    f"{pads.up(edges[-1])}, to which the last bucket may be padded."
                )
        else:
            sizes = _sizes(batch_sizes, len(edges))
        node = BucketNode(
            self._own_node(),
            edges,
            sizes,
            LengthOf(_checked(length, "bucket_by_length"), "bucket_by_length"),
            pads,
            bool(pad_to_boundary),
            _positive("bucket_by_length", "window", window),
            bool(drop_remainder),
            lengths_as,
        )
        return self._then(node)


def _split_node(
    parent: Node, lengths: Any, meta_features: Sequence[str], bos_token_id: int | None
) -> Node:
    checked = check_lengths(lengths)
    metas = frozenset(names_of(meta_features, "meta_features"))
    bos = frozenset(checked) - metas if bos_token_id is not None else frozenset()
    check_bos(bos_token_id is not None, bos, bos_token_id, metas)
    token = None if bos_token_id is None else operator.index(bos_token_id)
    chosen = only_step(parent, tuple(checked))
    return SplitNode(chosen, checked, metas, True, bos, token)


def _prepared(parent: Node, packing: Packing, too_long: str) -> Node:
    """What is packed: the elements, with what is done about those that are too long."""
    if too_long not in _TOO_LONG:
        raise PlanError(
            f"`pack`: too_long must be one of {', '.join(_TOO_LONG)}, and is {too_long!r}."
        )
    return _TOO_LONG[too_long](
        parent, {feature.path[0]: feature.length for feature in packing.features if feature.has_ids}
    )


def _sizes(batch_sizes: Any, buckets: int) -> tuple[int, ...]:
    if isinstance(batch_sizes, Sequence):
        sizes = tuple(operator.index(size) for size in batch_sizes)
    else:
        sizes = (operator.index(batch_sizes),) * buckets
    if len(sizes) not in (buckets, buckets + 1) or not all(size > 0 for size in sizes):
        raise PlanError(
            f"`bucket_by_length`: with {buckets} boundaries there are {buckets} positive "
            f"batch_sizes, or one more for what is longer, and not {list(sizes)}."
        )
    return sizes


def _positive(operation: str, name: str, value: Any) -> int:
    number: int = operator.index(value)
    if number <= 0:
        raise PlanError(f"`{operation}`: {name} must be positive, and is {number}.")
    return number


def _checked(length: Any, operation: str) -> Length:
    if length is not None and not isinstance(length, str) and not callable(length):
        raise TypeError(
            f"`{operation}`: `length` is the name of a feature or a function of an element, and "
            f"not {length!r:.100}."
        )
    checked: Length = length
    return checked
