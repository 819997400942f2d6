"""What happened in one library, and whether the same happened in the other."""

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from bushel.core.block_size import BlockSize
from tests import thorough


def examples(count: int) -> settings:
    """The settings of a test: of so many examples three fifths, or more if they are asked for."""
    count = thorough.examples(count) if thorough.THOROUGH else 3 * count // 5
    return settings(settings.get_profile("grain"), max_examples=count)


@contextmanager
def blocks_of(size: int) -> Iterator[None]:
    """Makes all blocks that large, where bushel would go by the clock."""

    def set_size(self: BlockSize, *_: Any) -> None:
        self.size = size

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockSize, "learn", set_size)
        patch.setattr(BlockSize, "limit_bytes", set_size)
        yield


@dataclass(frozen=True)
class Raised:
    """An exception in the place of a value."""

    error: BaseException

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}({str(self.error)[:80]!r})"


def outcome(function: Callable[[], Any]) -> Any:
    """What a call returns, or what it raises."""
    try:
        return function()
    except Exception as error:
        return Raised(error)


def events(iterator: Iterable[Any], most: int = 1000) -> list[Any]:
    """Elements and exceptions, until the end; an iterator that fails goes on."""
    iterator = iter(iterator)
    happened = []
    while len(happened) < most:
        try:
            happened.append(next(iterator))
        except StopIteration:
            return happened
        except Exception as error:
            happened.append(Raised(error))
    raise AssertionError(f"no end after {most} elements")


# Where Grain's error has no use to anybody, bushel may give a value or another error.
DELIBERATE = (
    (
        TypeError,
        "index_shuffle(): incompatible function arguments",
        "the seed of a window leaves 32 bits; bushel wraps it around, as `shuffle` does",
    ),
)


def is_deliberate(expected: Any) -> bool:
    """Whether bushel is free to do something else than what happened in Grain."""
    return isinstance(expected, Raised) and any(
        isinstance(expected.error, kind) and text in str(expected.error)
        for kind, text, _ in DELIBERATE
    )


def difference(expected: Any, actual: Any, path: str = "") -> str | None:
    """Says where two elements differ: in a value, a type, a dtype, a shape; or None."""
    if is_deliberate(expected):
        return None
    if isinstance(expected, Raised) or isinstance(actual, Raised):
        if isinstance(expected, Raised) and isinstance(actual, Raised):
            return wrong_kind(expected.error, actual.error)
        return f"{path}: expected {expected!r}, got {actual!r}"
    if type(expected) is not type(actual):
        return (
            f"{path}: expected {type(expected).__name__} {expected!r}, "
            f"got {type(actual).__name__} {actual!r}"
        )
    if isinstance(expected, np.ndarray):
        if (expected.dtype, expected.shape) != (actual.dtype, actual.shape):
            return (
                f"{path}: expected {expected.dtype}{expected.shape} {expected!r}, "
                f"got {actual.dtype}{actual.shape} {actual!r}"
            )
        if expected.dtype != object:
            same = expected.tobytes() == actual.tobytes()
            return None if same else f"{path}: expected {expected!r}, got {actual!r}"
        return difference(expected.ravel().tolist(), actual.ravel().tolist(), path)
    if isinstance(expected, dict):
        # In any order: JAX, and so Grain, sorts the keys of a batch; bushel leaves them.
        if set(expected) != set(actual):
            return f"{path}: expected keys {list(expected)}, got {list(actual)}"
        pairs = [(name, expected[name], actual[name]) for name in expected]
    elif isinstance(expected, (list, tuple)):
        if len(expected) != len(actual):
            return f"{path}: expected {expected!r}, got {actual!r}"
        pairs = [(str(i), *both) for i, both in enumerate(zip(expected, actual, strict=True))]
    elif expected == actual or (expected != expected and actual != actual):
        return None
    else:
        return f"{path}: expected {expected!r}, got {actual!r}"
    found = (difference(old, new, f"{path}[{name}]") for name, old, new in pairs)
    return next(filter(None, found), None)


def builtin_kind(error: BaseException) -> type[BaseException]:
    """The nearest class of an exception that a program can name without either library."""
    for kind in type(error).__mro__:
        if kind.__module__ == builtins.__name__ or not kind.__module__.startswith("grain"):
            return kind
    raise AssertionError(f"{type(error)} is no exception")


def wrong_kind(expected: BaseException, actual: BaseException) -> str | None:
    """Says that an `except` clause written for Grain would not catch bushel's error."""
    if isinstance(actual, builtin_kind(expected)):
        return None
    return f"expected {Raised(expected)}, got {Raised(actual)}"


def assert_same(expected: Any, actual: Any, where: Any = "") -> None:
    """Fails, saying where, unless two outcomes are the same."""
    found = difference(expected, actual)
    assert found is None, f"{where}{found}"
