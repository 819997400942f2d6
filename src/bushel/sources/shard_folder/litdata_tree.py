"""The nesting of a litdata record: dicts, lists and tuples of leaves."""

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

# Takes as many leaves as it needs, and builds a value from them.
Build: TypeAlias = Callable[[Iterator[Any]], Any]

_DEEPEST = 100
_DICTS = ("builtins.dict", "collections.OrderedDict")


def tree_of(spec: Any) -> tuple[int, Build]:
    """The number of leaves of a tree, and its builder. Raises a ValueError if it is invalid.

    >>> leaf = {"type": None, "context": None, "children_spec": []}
    >>> pair = {"type": "builtins.tuple", "context": "null", "children_spec": [leaf, leaf]}
    >>> number, build = tree_of(json.dumps([1, pair]))
    >>> number, build(iter("ab"))
    (2, ('a', 'b'))
    """
    if not isinstance(spec, str):
        raise ValueError("it does not say what its records are made of")
    try:
        told = json.loads(spec)
    except RecursionError:
        raise ValueError("its records are nested too deeply") from None
    if not isinstance(told, list) or len(told) != 2 or told[0] != 1:
        raise ValueError(f"its records are described in a way that is not known: {spec!r:.100}")
    return _node(told[1], 0)


def _node(told: Any, depth: int) -> tuple[int, Build]:
    if not isinstance(told, dict) or depth > _DEEPEST:
        raise ValueError("its records are described in a way that is not known")
    kind, children = told.get("type"), told.get("children_spec")
    if not isinstance(children, list):
        raise ValueError("its records are described in a way that is not known")
    if kind is None:
        return 1, next
    parts = [_node(child, depth + 1) for child in children]
    number = sum(leaves for leaves, _ in parts)
    builds = [build for _, build in parts]
    if kind in _DICTS:
        names = json.loads(told["context"]) if isinstance(told.get("context"), str) else None
        if not isinstance(names, list) or len(names) != len(builds):
            raise ValueError("a dict of its records does not have a value for each name")
        if not all(isinstance(name, (str, int, float, bool, type(None))) for name in names):
            raise ValueError("a dict of its records has names that are none")
        pairs = list(zip(names, builds, strict=True))
        return number, lambda leaves: {name: build(leaves) for name, build in pairs}
    if kind == "builtins.list":
        return number, lambda leaves: [build(leaves) for build in builds]
    if kind == "builtins.tuple":
        return number, lambda leaves: tuple([build(leaves) for build in builds])
    raise ValueError(
        f"its records are of the type {kind!r:.100}. bushel builds dicts, lists and tuples; "
        "write the chunks anew from such"
    )
