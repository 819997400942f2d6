"""The digest of one function: of its code, the values around it, the functions that it calls."""

import functools
from itertools import zip_longest
from types import CodeType, FunctionType
from typing import Any

from bushel.core.altered import altered_by, attributes_set, only_reads
from bushel.core.code_used import used_by
from bushel.core.naming import name_of
from bushel.core.node import Node, walk

_METHODS = ("map", "filter", "flat_map", "map_batches", "map_with_index", "random_map")


def fingerprints(node: Node) -> list[str]:
    """Names and digests of the functions of a pipeline, and its sources; the last step first.

    Two functions with the same code have the same digest, wherever they are written. Other
    functions, variables and files that they refer to do not count.
    """
    found = []
    for step in walk(node):
        source = getattr(step, "source", None)
        if type(source).__module__.startswith("bushel."):
            found.append(repr(source))  # Sources of files name the files.
        transform = getattr(step, "transform", None) or getattr(step, "batch_fn", None)
        if transform is not None:
            found.append(" ".join(fingerprint_of(transform)))
    return found


def fingerprint_of(function: Any) -> tuple[str, str]:
    """The name of a function, and a digest of its code."""
    return _name(function), _digest(function)


def _name(transform: Any) -> str:
    name = name_of(transform)
    # The name of a lambda has its place in the file, which changes with any line before it.
    return name.partition(" at ")[0]


def _digest(transform: Any) -> str:
    codes = [_code_of(transform)]
    codes += [_code_of(getattr(transform, method, None)) for method in _METHODS]
    text = "\n".join(_text_of(code) for code in codes if code is not None)
    return digest_of(text)


def digest_of(text: str) -> str:
    """Sixteen letters that differ for different texts."""
    import hashlib  # It loads a library of cryptography, which few pipelines need.

    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


# (A thousand parts of a mixture may have a thousand functions of one code.)
@functools.lru_cache(maxsize=64)
def _text_of(code: CodeType) -> str:
    constants = [
        _text_of(constant) if isinstance(constant, CodeType) else _shown(constant)
        for constant in code.co_consts
    ]
    return repr((code.co_code, constants, code.co_names, code.co_varnames[: code.co_argcount]))


def _shown(constant: Any) -> str:
    # The order of a set differs from process to process.
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)


def behaviour_of(function: Any) -> str:
    """A digest of what a function does, as far as its code and plain values tell.

    It covers its code and constants, the functions of the program that it calls (`used_by`), and
    the plain values that it was made with: closure, defaults, arguments of a `partial`, fields of a
    dataclass, and attributes that the constructor set. Values that a function changes, or that
    others may change (`altered_by`, `only_reads`), are its memory and do not count. The digest is
    the same in every process of a Python version, whatever the file and line.

    >>> behaviour_of(lambda x: x + 1) == behaviour_of(lambda x: x + 1)
    True
    >>> behaviour_of(lambda x: x + 1) == behaviour_of(lambda x: x + 2)
    False
    """
    return digest_of(repr(_told(function, 0)))


# The depth to which functions within functions, and values within values, are followed.
_DEEPEST = 6
_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def _told(value: Any, depth: int) -> Any:
    """The text of a value for the digest: plain values themselves, functions by their code."""
    if isinstance(value, _PLAIN):
        return value
    if depth > _DEEPEST:
        return type(value).__qualname__
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [_told(item, depth + 1) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value).__name__, sorted(repr(_told(item, depth + 1)) for item in value)
    if isinstance(value, dict):
        pairs = [
            (repr(_told(key, depth + 1)), _told(item, depth + 1)) for key, item in value.items()
        ]
        return "dict", sorted(pairs, key=lambda pair: pair[0])
    if isinstance(value, functools.partial):
        return _told_partial(value, depth)
    own = _code_of(value)
    if own is not None:
        return _told_function(getattr(value, "__func__", value), own, depth)
    within = None if isinstance(value, type) else getattr(value, "__wrapped__", None)
    if within is not None:  # By `functools.cache`, for example.
        return "wrapped", _told(within, depth + 1)
    if isinstance(value, type) or hasattr(value, "__qualname__"):
        return getattr(value, "__module__", ""), value.__qualname__
    methods = [getattr(type(value), name, None) for name in ("__call__", *_METHODS)]
    own_methods = [method for method in methods if isinstance(method, FunctionType)]
    codes = [method.__code__ for method in own_methods]
    fields = getattr(type(value), "__dataclass_fields__", None) if codes else ()
    names = _given_attributes(value) if fields is None else fields
    plain = [
        (name, _told(getattr(value, name, None), depth + 1))
        for name in names
        if _counts(getattr(value, name, None), name, codes)
    ]
    used = [_told_used(method) for method in own_methods]
    return type(value).__qualname__, [_text_of(code) for code in codes], plain, used


def _told_used(function: FunctionType) -> Any:
    return [
        (name, _text_of(value) if isinstance(value, CodeType) else _told(value, 0))
        for name, value in used_by(function)
    ]


def _given_attributes(value: Any) -> list[str]:
    """Attributes named as arguments of the constructor, if they are plain values and stay so.

    (`self._size = size`. Computed values may differ from run to run.)
    """
    begin = _code_of(type(value).__init__)
    if begin is None:
        return []
    arguments = begin.co_varnames[1 : begin.co_argcount + begin.co_kwonlyargcount]
    others = [
        code
        for kind in type(value).__mro__
        for name, method in vars(kind).items()
        if name != "__init__" and (code := _code_of(method)) is not None
    ]
    changed = frozenset().union(*map(attributes_set, others))
    return [
        name
        for name, given in sorted(getattr(value, "__dict__", {}).items())
        if name.lstrip("_") in arguments and name not in changed and _is_settled(given)
    ]


def _is_settled(value: Any) -> bool:
    """Whether this is a plain value that nobody can change."""
    if isinstance(value, (tuple, frozenset)):
        return all(map(_is_settled, value))
    return isinstance(value, _PLAIN)


def _counts(value: Any, name: str, codes: list[CodeType]) -> bool:
    """Whether a value around a function is part of what it does, and not its memory."""
    if any(name in altered_by(code) for code in codes):
        return False
    if not isinstance(value, (list, dict, set, bytearray)):
        return True
    items = [*value, *value.values()] if isinstance(value, dict) else value
    # (A value within it could be taken out, and changed there.)
    only_read = bool(codes) and all(only_reads(code, name) for code in codes)
    return only_read and all(map(_is_settled, items))


def _told_function(function: Any, code: CodeType, depth: int) -> Any:
    cells = getattr(function, "__closure__", None) or ()
    around: list[tuple[str, Any]] = []
    for name, cell in zip(code.co_freevars, cells, strict=False):
        try:
            around.append((name, cell.cell_contents))
        except ValueError:  # An empty cell.
            around.append((name, ""))
    defaults = getattr(function, "__defaults__", None) or ()
    last = code.co_argcount
    around += zip(code.co_varnames[last - len(defaults) : last], defaults, strict=False)
    around += sorted((getattr(function, "__kwdefaults__", None) or {}).items())
    used = _told_used(function) if isinstance(function, FunctionType) else []
    return _text_of(code), _told_around(around, code, depth), used


def _told_partial(value: "functools.partial[Any]", depth: int) -> Any:
    code = _code_of(value.func)
    names = code.co_varnames if code is not None else ()
    given = zip_longest(names[: len(value.args)], value.args, fillvalue="")
    around = [*given, *sorted(value.keywords.items())]
    return "partial", _told(value.func, depth + 1), _told_around(around, code, depth)


def _told_around(around: list[tuple[str, Any]], code: CodeType | None, depth: int) -> Any:
    """The values that a function was made with, except those that it changes."""
    codes = [] if code is None else [code]
    counted = ((name, value) for name, value in around if _counts(value, name, codes))
    return [(name, _told(value, depth + 1)) for name, value in counted]
