"""`pack(strategy=...)`: chooses the steps of a strategy; refuses options of another strategy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bushel.batch.pack_options import names_of, pack_node, packing_of
from bushel.batch.packed_features import only_step
from bushel.batch.packing import Packing
from bushel.batch.split import SplitNode, check_bos, check_lengths
from bushel.batch.too_long import Fits, Pieces, Truncated
from bushel.core.arguments import whole
from bushel.core.node import Node
from bushel.errors import PlanError
from bushel.transforms.filter import filter_step
from bushel.transforms.flat_map import flat_map_step
from bushel.transforms.map import map_step

_STRATEGIES = ("first_fit", "best_fit", "concat_then_split")
_TOO_LONG: dict[str, Callable[[Node, dict[str, int]], Node]] = {
    "error": lambda parent, lengths: parent,
    "truncate": lambda parent, lengths: map_step(parent, Truncated(lengths)),
    "split": lambda parent, lengths: flat_map_step(parent, Pieces(lengths)),
    "drop": lambda parent, lengths: filter_step(parent, Fits(lengths)),
}


def pack_step(
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
    """Makes the step of `pack`, which explains it."""
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
    """The elements to pack, after the treatment of those that are too long."""
    if too_long not in _TOO_LONG:
        raise PlanError(
            f"`pack`: too_long must be one of {', '.join(_TOO_LONG)}, and is {too_long!r}."
        )
    return _TOO_LONG[too_long](
        parent, {feature.path[0]: feature.length for feature in packing.features if feature.has_ids}
    )
