"""The arguments of first-fit and best-fit `pack`, checked: lengths, bins, alignment, padding."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bushel.batch.pack import PackNode
from bushel.batch.packing import Feature, Packing
from bushel.core.arguments import whole
from bushel.core.node import Node
from bushel.core.tree import Path
from bushel.errors import PlanError


def pack_node(
    parent: Node, packing: Packing, seed: int, shuffles: bool, group_by: str | None
) -> PackNode:
    """The step that packs."""
    if whole(seed, "seed") < 0:
        raise PlanError(f"`seed` must not be negative, and is {seed}.")
    group_by = group_by if shuffles else None
    if group_by is not None:
        check_group_by(packing, group_by)
    return PackNode(parent, packing, whole(seed, "seed"), shuffles, group_by)


def packing_of(
    length_struct: Any,
    num_packing_bins: int,
    best_fit: bool,
    meta_features: Sequence[str],
    pack_alignment_struct: Any,
    padding_struct: Any,
    max_sequences_per_bin: int | None,
) -> Packing:
    """Checks the user's arguments, and converts them."""
    if not isinstance(length_struct, Mapping):
        raise PlanError(
            "`length_struct` must be a dict from features to lengths, and is "
            f"{type(length_struct).__name__}: {length_struct!r:.100}."
        )
    if (
        max_sequences_per_bin is not None
        and whole(max_sequences_per_bin, "max_sequences_per_bin") <= 0
    ):
        raise PlanError(
            f"`max_sequences_per_bin` must be a positive integer, and is {max_sequences_per_bin}."
        )
    if num_packing_bins <= 0:
        raise PlanError(f"`num_packing_bins` must be positive, and is {num_packing_bins}.")
    metas = names_of(meta_features, "meta_features")
    features = []
    for path, length in leaves_of(length_struct):
        if len(path) > 1 and path[0] not in metas:
            raise PlanError(
                f"the feature {path[0]!r} is a dict of features, of which no segment ids can be "
                f"made. Name it in `meta_features`, or bring {'/'.join(path)!r} to the top."
            )
        if not isinstance(length, (int, np.integer)) or length < 0:
            raise PlanError(
                f"the length of feature {'/'.join(path)!r} must be a whole number, and is "
                f"{length!r}. (A feature without a length goes into `meta_features`.)"
            )
        alignment = _at(pack_alignment_struct, path, "pack_alignment_struct")
        if alignment is not None and not (
            isinstance(alignment, (int, np.integer)) and alignment > 0
        ):
            raise PlanError(
                f"the alignment of feature {'/'.join(path)!r} must be a positive whole number, and "
                f"is {alignment!r:.100}."
            )
        padding = _at(padding_struct, path, "padding_struct")
        features.append(
            Feature(path, int(length), int(alignment or 1), padding, has_ids=path[0] not in metas)
        )
    loose = [name for name in metas if name not in length_struct]
    if not features and not loose:
        raise PlanError("`length_struct` has no features.")
    _check_names(features, {*length_struct, *loose})
    return Packing(features, loose, num_packing_bins, best_fit, max_sequences_per_bin)


def names_of(names: Iterable[str], what: str) -> list[str]:
    """Returns the names of features; there may be a single one."""
    if isinstance(names, str):
        raise PlanError(f"`{what}` is a list of names: write [{names!r}] instead of {names!r}.")
    return list(names)


def _check_names(features: Sequence[Feature], names: Collection[str]) -> None:
    for feature in features:
        for added in row_names(feature)[1:]:
            if added in names:
                raise PlanError(
                    f"a row has {added!r} for what it tells of feature {feature.name!r}, so no "
                    "feature can have that name. Rename it in a `map` before."
                )


def row_names(feature: Feature) -> list[str]:
    """The names that a row has for a feature."""
    name = feature.path[0]
    return [name, f"{name}_segment_ids", f"{name}_positions"] if feature.has_ids else [name]


def check_group_by(packing: Packing, name: str) -> None:
    """Raises if rows have nothing of this name to be ordered by."""
    names = [known for feature in packing.features for known in row_names(feature)]
    names += packing.loose
    if name not in names:
        raise PlanError(
            f"`shuffle_bins_group_by_feature` is {name!r}, and rows have only {sorted(set(names))}."
        )


def leaves_of(struct: Mapping[str, Any], path: Path = ()) -> Iterable[tuple[Path, Any]]:
    """The leaves of nested dicts with their paths, names sorted."""
    for name in sorted(struct):
        value = struct[name]
        if isinstance(value, Mapping):
            yield from leaves_of(value, (*path, name))
        else:
            yield (*path, name), value


def _at(struct: Any, path: Path, what: str) -> Any:
    if struct is None:
        return None
    for name in path:
        if not isinstance(struct, Mapping) or name not in struct:
            raise PlanError(
                f"`{what}` must have the same features as `length_struct`, and has no "
                f"{'/'.join(path)!r}: {struct!r:.100}."
            )
        struct = struct[name]
    return struct
