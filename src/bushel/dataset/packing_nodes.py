"""The steps of streams whose elements have many lengths, made of what their methods were given.

Apart from the methods (see `lengths.py`), which every dataset has, since it is much to import.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from bushel.batch.batch_by_tokens import TokenBatchNode
from bushel.batch.buckets import BucketNode
from bushel.batch.length_of import Length, LengthOf
from bushel.batch.pack_options import names_of, pack_node, packing_of
from bushel.batch.packed_features import only_step
from bushel.batch.packing import Packing
from bushel.batch.pad import padding_of
from bushel.batch.split import SplitNode, check_bos, check_lengths
from bushel.batch.too_long import Fits, Pieces, Truncated
from bushel.core.arguments import whole
from bushel.core.node import Node
from bushel.dataset.steps import filter_step, flat_map_step, map_step
from bushel.errors import PlanError

_STRATEGIES = ("first_fit", "best_fit", "concat_then_split")
_TOO_LONG: dict[str, Callable[[Node, dict[str, int]], Node]] = {
    "error": lambda parent, lengths: parent,
    "truncate": lambda parent, lengths: map_step(parent, Truncated(lengths)),
    "split": lambda parent, lengths: flat_map_step(parent, Pieces(lengths)),
    "drop": lambda parent, lengths: filter_step(parent, Fits(lengths)),
}


def packed(
    parent: Node,
    lengths: Mapping[str, Any],
    strategy: str,
    bins: int | None,
    seed: int | None,
    meta_features: Sequence[str],
    alignment: Any,
    padding: Any,
    max_sequences: int | None,
    too_long: str | None,
    bos_token_id: int | None,
) -> Node:
    """Lays sequences side by side, as `pack` explains."""
    if strategy not in _STRATEGIES:
        raise PlanError(
            f"`pack`: the strategy must be one of {', '.join(_STRATEGIES)}, and is {strategy!r}."
        )
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
        return _split_node(parent, lengths, meta_features, bos_token_id)
    if bos_token_id is not None:
        raise PlanError(
            "`pack`: `bos_token_id` is for strategy='concat_then_split', which cuts sequences; "
            f"with {strategy!r} they stay whole, begin-of-sequence tokens included."
        )
    packing = packing_of(
        lengths,
        whole(64 if bins is None else bins, "bins"),
        strategy == "best_fit",
        meta_features,
        alignment,
        padding,
        max_sequences,
    )
    parent = _prepared(parent, packing, "error" if too_long is None else too_long)
    return pack_node(parent, packing, seed or 0, seed is not None, None)


def batched_by_tokens(
    parent: Node,
    max_tokens: int,
    length: Length,
    pad_to_multiple_of: int,
    padding: Any,
    max_rows: int | None,
    drop_remainder: bool,
    lengths_as: str | None,
) -> Node:
    """Batches what fits into a budget, as `batch_by_tokens` explains."""
    budget = _positive("batch_by_tokens", "max_tokens", max_tokens)
    rows = None if max_rows is None else _positive("batch_by_tokens", "max_rows", max_rows)
    return TokenBatchNode(
        parent,
        budget,
        LengthOf(_checked(length, "batch_by_tokens"), "batch_by_tokens"),
        padding_of(padding, whole(pad_to_multiple_of, "pad_to_multiple_of"), "batch_by_tokens"),
        rows,
        bool(drop_remainder),
        lengths_as,
    )


def in_buckets(
    parent: Node,
    boundaries: Sequence[int],
    batch_sizes: Sequence[int] | int | None,
    max_tokens: int | None,
    length: Length,
    pad_to_multiple_of: int,
    pad_to_boundary: bool,
    padding: Any,
    window: int,
    drop_remainder: bool,
    lengths_as: str | None,
) -> Node:
    """Batches what is about as long, as `bucket_by_length` explains."""
    edges = tuple(whole(edge, "a boundary") for edge in boundaries)
    if not edges or edges[0] < 0 or any(b <= a for a, b in pairwise(edges)):
        raise PlanError(
            "`bucket_by_length`: boundaries must be increasing numbers, at least one, and are "
            f"{list(edges)}."
        )
    pads = padding_of(padding, whole(pad_to_multiple_of, "pad_to_multiple_of"), "bucket_by_length")
    if (batch_sizes is None) == (max_tokens is None):
        raise PlanError(
            "`bucket_by_length` takes either `batch_sizes` or `max_tokens`, and got "
            f"batch_sizes={batch_sizes!r} and max_tokens={max_tokens!r}."
        )
    if max_tokens is not None:
        sizes = tuple(whole(max_tokens, "max_tokens") // max(1, pads.up(edge)) for edge in edges)
        if not all(size > 0 for size in sizes):
            raise PlanError(
                f"`bucket_by_length`: max_tokens={max_tokens} holds not even one element of "
                f"{pads.up(edges[-1])}, to which the last bucket may be padded."
            )
    else:
        sizes = _sizes(batch_sizes, len(edges))
    return BucketNode(
        parent,
        edges,
        sizes,
        LengthOf(_checked(length, "bucket_by_length"), "bucket_by_length"),
        pads,
        bool(pad_to_boundary),
        _positive("bucket_by_length", "window", window),
        bool(drop_remainder),
        lengths_as,
    )


def _split_node(
    parent: Node, lengths: Any, meta_features: Sequence[str], bos_token_id: int | None
) -> Node:
    checked = check_lengths(lengths)
    metas = frozenset(names_of(meta_features, "meta_features"))
    bos = frozenset(checked) - metas if bos_token_id is not None else frozenset()
    check_bos(bos_token_id is not None, bos, bos_token_id, metas)
    token = None if bos_token_id is None else whole(bos_token_id, "bos_token_id")
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
        sizes = tuple(whole(size, "a batch size") for size in batch_sizes)
    else:
        sizes = (whole(batch_sizes, "batch_sizes"),) * buckets
    if len(sizes) not in (buckets, buckets + 1) or not all(size > 0 for size in sizes):
        raise PlanError(
            f"`bucket_by_length`: with {buckets} boundaries there are {buckets} positive "
            f"batch_sizes, or one more for what is longer, and not {list(sizes)}."
        )
    return sizes


def _positive(operation: str, name: str, value: Any) -> int:
    number: int = whole(value, name)
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
