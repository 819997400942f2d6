"""Imports public names when they are first used."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from bushel.core.arguments import meant


def lazily(namespace: dict[str, Any], homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Makes the `__getattr__` of a module whose names live elsewhere: "module:name" each.

    >>> names = {"__name__": "example"}
    >>> find = lazily(names, {"Fold": "core.node:Fold"})
    >>> find("Fold").__module__, "Fold" in names
    ('bushel.core.node', True)
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            module = namespace["__name__"]
            close = "" if name.startswith("_") else meant(name, homes)
            raise AttributeError(f"module {module!r} has no attribute {name!r}.{close}")
        module, _, attribute = home.partition(":")
        loaded = import_module(f"bushel.{module}")
        value = getattr(loaded, attribute) if attribute else loaded
        namespace[name] = value  # Found at once the next time.
        return value

    return find
