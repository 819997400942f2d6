"""Names the variable, argument or attribute that leads to an object that cannot be pickled."""

import functools
import types
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

# The most objects that are searched; a pipeline with more is a pipeline of data.
_MOST = 100_000
_LEAVES = (str, bytes, bytearray, int, float, complex, type(None), types.ModuleType)

# A reference from an object: its name (None for an item of a container, whose own name says more),
# and the object that it leads to.
_Way = tuple[str | None, Any]


def holder_of(root: Any, wanted: Any) -> tuple[str, bool] | None:
    """Names the variable, argument or attribute through which one object leads to another.

    Also tells whether that is the object itself, or has it somewhere inside.

    >>> lines = iter(["a", "b"])
    >>> def read(number):
    ...     return next(lines)
    >>> holder_of([read], lines)
    ('the global variable `lines`, which `read` uses,', True)
    """
    seen = {id(root)}
    ahead: deque[tuple[str | None, Any]] = deque([(None, root)])
    while ahead and len(seen) < _MOST:
        name, holder = ahead.popleft()
        for way, value in _ways(holder):
            if value is wanted:
                found = way or name
                return None if found is None else (found, way is not None)
            if id(value) not in seen and not isinstance(value, _LEAVES):
                seen.add(id(value))
                ahead.append((way or name, value))
    return None


def _ways(holder: Any) -> Iterator[_Way]:
    if isinstance(holder, types.FunctionType):
        yield from _of_function(holder)
    elif isinstance(holder, functools.partial):
        yield None, holder.func
        of = f"of `functools.partial({_name(holder.func)}, ...)`"
        for index, value in enumerate(holder.args):
            yield f"argument {index} {of}", value
        for key, value in holder.keywords.items():
            yield f"the argument `{key}` {of}", value
    elif isinstance(holder, types.MethodType):
        yield None, holder.__func__
        yield None, holder.__self__
    elif isinstance(holder, (staticmethod, classmethod)):
        yield None, holder.__func__
    elif isinstance(holder, property):
        for function in (holder.fget, holder.fset, holder.fdel):
            yield None, function
    elif isinstance(holder, dict):
        for item in (*holder, *holder.values()):
            yield None, item
    elif isinstance(holder, (list, tuple, set, frozenset, deque)):
        for item in holder:
            yield None, item
    elif isinstance(holder, type):
        if holder.__module__ == "__main__" or "<locals>" in holder.__qualname__:  # Sent by value.
            yield from _attributes(vars(holder).items(), holder)
    else:
        yield None, type(holder)
        yield None, getattr(holder, "__wrapped__", None)
        yield from _attributes(_fields(holder), type(holder))


def _of_function(function: types.FunctionType) -> Iterator[_Way]:
    name, code = function.__name__, function.__code__
    for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f"the variable `{variable}`, which `{name}` uses,", cell.cell_contents
        except ValueError:  # A cell without a value.
            continue
    for variable in _names_in(code):
        if variable in function.__globals__:
            value = function.__globals__[variable]
            yield f"the global variable `{variable}`, which `{name}` uses,", value
    positional = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    given = zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    for argument, value in (*given, *(function.__kwdefaults__ or {}).items()):
        yield f"the default of `{argument}` in `{name}`", value
    yield from _attributes(vars(function).items(), function)


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _fields(holder: Any) -> Iterator[tuple[str, Any]]:
    yield from getattr(holder, "__dict__", {}).items()
    for cls in type(holder).__mro__:
        slots = vars(cls).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(holder, name):
                yield name, getattr(holder, name)


def _attributes(values: Iterable[tuple[str, Any]], of: Any) -> Iterator[_Way]:
    for name, value in list(values):
        yield f"the attribute `{name}` of `{_name(of)}`", value


def _name(value: Any) -> str:
    return getattr(value, "__name__", type(value).__name__)
