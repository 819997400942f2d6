"""Nested elements: dicts, lists, tuples and registered classes, with leaves.

This is the same notion of a tree as in JAX, without importing JAX. Classes that a user registered
with `jax.tree_util` are recognised if JAX is loaded, and without JAX no class can have been
registered.
"""

import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

Rebuild = Callable[[list[Any]], Any]
Path = tuple[Any, ...]

_PLAIN_LEAVES = frozenset({int, float, bool, str, bytes, complex})


def open_node(tree: Any) -> tuple[list[Any], list[Any], Rebuild] | None:
    """Splits a node into names, children and a function that puts it together again.

    Returns None for a leaf. `None` itself is a node without children, as in JAX.

    >>> names, children, rebuild = open_node({"a": 1, "b": 2})
    >>> names, children, rebuild([10, 20])
    (['a', 'b'], [1, 2], {'a': 10, 'b': 20})
    >>> open_node(3) is None
    True
    """
    kind = type(tree)
    if kind is dict:
        names = list(tree)
        return names, list(tree.values()), lambda children: dict(zip(names, children, strict=True))
    if kind in _PLAIN_LEAVES or kind.__module__ == "numpy":
        return None
    if kind is tuple:
        return list(range(len(tree))), list(tree), tuple
    if kind is list:
        return list(range(len(tree))), list(tree), list
    if tree is None:
        return [], [], lambda _: None
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return list(tree._fields), list(tree), lambda children: kind(*children)
    if kind is OrderedDict:
        names = list(tree)
        return (
            names,
            list(tree.values()),
            lambda children: OrderedDict(zip(names, children, strict=False)),
        )
    if kind is defaultdict:
        names, factory = list(tree), tree.default_factory
        return (
            names,
            list(tree.values()),
            lambda children: defaultdict(factory, zip(names, children, strict=True)),
        )
    return _open_registered(tree)


def _open_registered(tree: Any) -> tuple[list[Any], list[Any], Rebuild] | None:
    jax_trees = sys.modules.get("jax.tree_util")
    if jax_trees is None:
        return None
    children, structure = jax_trees.tree_flatten(tree, is_leaf=lambda node: node is not tree)
    if jax_trees.treedef_is_leaf(structure) and len(children) == 1 and children[0] is tree:
        return None
    return list(range(len(children))), children, structure.unflatten


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Applies a function to each leaf.

    >>> map_leaves(str, {"a": (1, 2), "b": None})
    {'a': ('1', '2'), 'b': None}
    """
    opened = open_node(tree)
    if opened is None:
        return function(tree)
    _, children, rebuild = opened
    return rebuild([map_leaves(function, child) for child in children])


def leaves_with_paths(tree: Any, path: Path = ()) -> Iterable[tuple[Path, Any]]:
    """Yields each leaf with the names that lead to it.

    >>> list(leaves_with_paths({"a": (1, 2)}))
    [(('a', 0), 1), (('a', 1), 2)]
    """
    opened = open_node(tree)
    if opened is None:
        yield path, tree
        return
    names, children, _ = opened
    for name, child in zip(names, children, strict=True):
        yield from leaves_with_paths(child, (*path, name))


def show_path(path: Path) -> str:
    """Writes a path the way one would type it.

    >>> show_path(("image", 0)), show_path(())
    ("element['image'][0]", 'element')
    """
    return "element" + "".join(f"[{name!r}]" for name in path)
