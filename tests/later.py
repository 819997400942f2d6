"""Packages that a test uses and that take long to import.

Every process of a parallel run collects every test. A package that is imported there costs its
seconds in each of them, also where no test that uses it is run.
"""

import importlib
from typing import Any


class _Later:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # What pytest asks of all that is in a module.
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def later(name: str) -> Any:
    """Returns what stands for a package, and imports it when it is first used."""
    return _Later(name)
