"""What the functions and sources of a pipeline are, as far as one can tell from outside."""

import functools
from types import CodeType
from typing import Any

from bushel.core.naming import name_of
from bushel.core.node import Node, walk

_METHODS = ("map", "filter", "flat_map", "map_batches", "map_with_index", "random_map")


def fingerprints(node: Node) -> list[str]:
    """Names and digests of the functions of a pipeline, and its sources; the last step first.

    Two functions with the same code have the same digest, wherever they are written. What they
    refer to (other functions, variables, files) is not looked at.
    """
    found = []
    for step in walk(node):
        source = getattr(step, "source", None)
        if type(source).__module__.startswith("bushel."):
            found.append(repr(source))  # Those on files name them.
        transform = getattr(step, "transform", None) or getattr(step, "batch_fn", None)
        if transform is not None:
            found.append(" ".join(fingerprint_of(transform)))
    return found


def fingerprint_of(function: Any) -> tuple[str, str]:
    """The name of a function, and a digest of its code."""
    return _name(function), _digest(function)


def _name(transform: Any) -> str:
    name = name_of(transform)
    # That of a lambda says where it is written, which may change with any line before it.
    return name.partition(" at ")[0]


def _digest(transform: Any) -> str:
    import hashlib  # It loads a library of cryptography, which few pipelines need.

    codes = [_code_of(transform)]
    codes += [_code_of(getattr(transform, method, None)) for method in _METHODS]
    text = "\n".join(_text_of(code) for code in codes if code is not None)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _code_of(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _text_of(code: CodeType) -> str:
    constants = [
        _text_of(constant) if isinstance(constant, CodeType) else _shown(constant)
        for constant in code.co_consts
    ]
    return repr((code.co_code, constants, code.co_names, code.co_varnames[: code.co_argcount]))


def _shown(constant: Any) -> str:
    # The order of a set differs from process to process.
    return repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
