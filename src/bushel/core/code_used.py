"""Finds the functions and module constants that a function uses, which its digest covers.

Only code of the program is followed, not installed packages. Constants count only if a module
assigns them once, as literals: computed values may differ from run to run, and a name that is
assigned again is a memory.
"""

import functools
import os
import sys
from collections import deque
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

_CONSTANTS = (bool, int, float, complex, str, bytes, tuple)
# The most functions that are followed; a pipeline does not call more of its own.
_MOST_FUNCTIONS = 200
_MOST_BYTES = 1 << 20
_NOTHING = object()


def used_by(function: FunctionType) -> list[tuple[str, Any]]:
    """The functions that a function calls, and those that these call, and constants they read.

    By the names that they are used by, in the order of their use.
    """
    found: list[tuple[str, Any]] = []
    waiting, seen = deque([function]), {function.__code__}
    while waiting and len(seen) < _MOST_FUNCTIONS:
        user = waiting.popleft()
        for name, value, module in _values_used(user):
            if isinstance(value, FunctionType):
                found.append((name, value.__code__))
                if value.__code__ not in seen and is_of_the_program(value.__module__):
                    seen.add(value.__code__)
                    waiting.append(value)
            elif isinstance(value, _CONSTANTS) and name.rpartition(".")[2] in literals_of(module):
                found.append((name, value))
    return found


def _values_used(function: FunctionType) -> Iterator[tuple[str, Any, str]]:
    """Names, values, and the modules that have them."""
    module = function.__module__ or ""
    for name, attribute in names_read(function.__code__):
        value = function.__globals__.get(name, _NOTHING)
        if isinstance(value, ModuleType):
            if attribute and is_of_the_program(value.__name__):
                within = _unwrapped(vars(value).get(attribute, _NOTHING))
                yield f"{name}.{attribute}", within, value.__name__
            continue
        value = _unwrapped(value)
        home = getattr(value, "__module__", None) or module
        if not isinstance(value, FunctionType) or is_of_the_program(home):
            yield name, value, module


def _unwrapped(value: Any) -> Any:
    """The function within decorators, as far as these name it."""
    for _ in range(10):
        value = getattr(value, "__wrapped__", value)
    return value


# (A thousand parts of a mixture may have a thousand functions of one code.)
@functools.lru_cache(maxsize=256)
def names_read(code: CodeType) -> tuple[tuple[str, str], ...]:
    """The names of its module that a function reads, each with the attribute that follows it.

    >>> def area(r):
    ...     return math.pi * abs(r)
    >>> names_read(area.__code__)
    (('math', 'pi'), ('abs', ''))
    """
    import dis  # Rarely needed.

    steps = list(dis.get_instructions(code))
    found: dict[tuple[str, str], None] = {}
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            is_looked_into = following is not None and following.opname in _ATTRIBUTES
            found[step.argval, following.argval if is_looked_into and following else ""] = None
    stored = {step.argval for step in steps if step.opname in ("STORE_GLOBAL", "STORE_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.update(dict.fromkeys(names_read(constant)))
    return tuple(pair for pair in found if pair[0] not in stored)


_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")


@functools.lru_cache(maxsize=1024)
def is_of_the_program(module: str) -> bool:
    """Whether a module is the user's own: not installed, nor Python's or bushel's."""
    if module == "__main__":
        return True
    path = getattr(sys.modules.get(module), "__file__", None)
    if not isinstance(path, str) or module.partition(".")[0] == "bushel":
        return False
    parts = path.split(os.sep)
    if "site-packages" in parts or "dist-packages" in parts:
        return False
    return not path.startswith(os.path.dirname(os.__file__) + os.sep)


@functools.lru_cache(maxsize=256)
def literals_of(module: str) -> frozenset[str]:
    """The names that a module assigns once, as a number, a text or a tuple of those."""
    import dis

    path = getattr(sys.modules.get(module), "__file__", None)
    try:
        if path is None or os.path.getsize(path) > _MOST_BYTES:
            return frozenset()
        with open(path, "rb") as file:
            # (Not by `ast`: in Python 3.11, threads that use it at the same time disturb each
            # other.)
            code = compile(file.read(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError, RecursionError):
        return frozenset()
    literal: set[str] = set()
    times: dict[str, int] = {}
    before = None
    for step in dis.get_instructions(code):
        if step.opname == "EXTENDED_ARG":
            continue
        if step.opname in ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME"):
            times[step.argval] = times.get(step.argval, 0) + 1
            loaded = before is not None and before.opname in _CONSTANT_LOADS
            if loaded and before is not None and _is_literal(before.argval):
                literal.add(step.argval)
        before = step
    return frozenset(name for name in literal - _given_elsewhere(code) if times[name] == 1)


_CONSTANT_LOADS = ("LOAD_CONST", "LOAD_SMALL_INT")


def _is_literal(value: object) -> bool:
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_literal, value))
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def _given_elsewhere(code: CodeType) -> set[str]:
    """The global names that functions within a module assign."""
    import dis

    found: set[str] = set()
    waiting = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    while waiting:
        inner = waiting.pop()
        waiting += [constant for constant in inner.co_consts if isinstance(constant, CodeType)]
        found |= {
            step.argval
            for step in dis.get_instructions(inner)
            if step.opname in ("STORE_GLOBAL", "DELETE_GLOBAL")
        }
    return found
