"""Every public name of Grain is here, with Grain's parameters, or it is in the table below."""

import enum
import importlib
import inspect
from typing import Any

import pytest

MODULES = (
    "",
    "constants",
    "samplers",
    "sharding",
    "sources",
    "transforms",
    "multiprocessing",
    "checkpoint",
    "python",
    "experimental",
    "python.experimental",
)

# Modules that a package happens to have as attributes, and that its documentation leaves out.
_INTERNAL = {"monitoring", "proto"}
# Methods with a name of Python's own that programs rely on.
_SPECIAL = {"__call__", "__getitem__", "__iter__", "__len__", "__next__"}


def _module(library: str, path: str) -> Any:
    return importlib.import_module(f"{library}.{path}" if path else library)


def _public(path: str) -> list[str]:
    names = [name for name in dir(_module("grain", path)) if name[0] != "_" or "_version" in name]
    return [f"{path}.{name}" if path else name for name in names if name not in _INTERNAL]


def _shared(name: str) -> str:
    """The place that a name stands for: grain.python.experimental is grain.experimental."""
    return name.removeprefix("python.") if name.startswith("python.experimental.") else name


NAMES = [name for path in MODULES for name in _public(path)]


def _find(library: str, name: str) -> Any:
    path, _, last = name.rpartition(".")
    return getattr(_module(library, path), last)


def _has(name: str) -> bool:
    path, _, last = name.rpartition(".")
    return hasattr(_module("bushel", path), last)


def test_names_are_there() -> None:
    assert [name for name in NAMES if not _has(name)] == []


def test_aliases_are_the_same_objects() -> None:
    """Where two names are one object in Grain, they are in bushel."""
    places: dict[int, list[str]] = {}
    for name in NAMES:
        thing = _find("grain", name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            places.setdefault(id(thing), []).append(name)
    several = [names for names in places.values() if len(names) > 1]
    assert len(several) > 20
    assert [n for n in several if len({id(_find("bushel", name)) for name in n}) > 1] == []


def test_constants_are_equal() -> None:
    for name in _public("constants"):
        assert _find("bushel", name) == _find("grain", name), name


def test_enums_have_the_same_members() -> None:
    enums = [name for name in NAMES if isinstance(_find("grain", name), enum.EnumMeta)]
    assert enums
    for name in enums:
        theirs, ours = _find("grain", name), _find("bushel", name)
        assert {m.name: m.value for m in ours} == {m.name: m.value for m in theirs}, name


def test_dir_shows_the_public_names_alone() -> None:
    shown = {name for name in dir(importlib.import_module("bushel")) if not name.startswith("__")}
    assert not {name for name in shown if name.startswith("_")}
    assert not shown & {"TYPE_CHECKING", "lazily", "core", "run", "workers", "cli"}
    assert {"MapDataset", "DataLoader", "open", "errors", "where", "explain"} <= shown
    assert [name for name in shown if not _has(name)] == []


# Signatures.


def _signature(function: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None  # Compiled code, and aliases of types, tell nothing.


def _plain(default: Any) -> str | None:
    """A default as text, where it is a value that one would write."""
    if hasattr(default, "value") and type(default).__name__ == "_Default":
        default = default.value  # What stands for "not set" shows the value that it has.
    text = repr(default)
    return None if " at 0x" in text else text


def _mismatches(theirs: inspect.Signature, ours: inspect.Signature) -> list[str]:
    """Why a call written for Grain might not work, or mean something else."""
    found = []
    mine = list(ours.parameters.values())
    by_position = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    for place, parameter in enumerate(theirs.parameters.values()):
        same = ours.parameters.get(parameter.name)
        if same is None:
            found.append(f"no {parameter.name}")
            continue
        if same.kind is not parameter.kind:
            found.append(f"{parameter.name} is {same.kind.description}")
        if parameter.kind in by_position and mine.index(same) != place:
            found.append(f"{parameter.name} is parameter {mine.index(same)}")
        if parameter.default is not parameter.empty:
            expected = _plain(parameter.default)
            if expected is not None and _plain(same.default) != expected:
                found.append(f"{parameter.name} = {same.default!r} is {expected} in Grain")
    for parameter in mine:
        optional = parameter.default is not parameter.empty or parameter.kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        )
        if parameter.name not in theirs.parameters and not optional:
            found.append(f"{parameter.name} is required")
    return found


def test_a_mismatch_is_noticed() -> None:
    """The comparison itself."""

    def theirs(a, b=1, *, c="x"): ...  # type: ignore[no-untyped-def]

    def better(a, b=1, *, c="x", d=None): ...  # type: ignore[no-untyped-def]

    def worse(b, a, c="y", *, e): ...  # type: ignore[no-untyped-def]

    assert _mismatches(inspect.signature(theirs), inspect.signature(better)) == []
    assert _mismatches(inspect.signature(theirs), inspect.signature(worse)) == [
        "a is parameter 1",
        "b is parameter 0",
        "b = <class 'inspect._empty'> is 1 in Grain",
        "c is positional or keyword",
        "c = 'y' is 'x' in Grain",
        "e is required",
    ]


def _methods(thing: Any) -> list[str]:
    """The public methods and properties of a class, those of its bases included."""
    if not inspect.isclass(thing) or isinstance(thing, enum.EnumMeta):
        return []
    names = {name for kind in thing.__mro__ if kind.__module__ != "builtins" for name in vars(kind)}
    return sorted(name for name in names if name[0] != "_" or name in _SPECIAL)


@pytest.mark.parametrize("path", [path for path in MODULES if path != "python.experimental"])
def test_signatures(path: str) -> None:
    found = {}
    for name in NAMES:
        if name.rpartition(".")[0] != path:
            continue
        theirs, ours = _find("grain", name), _find("bushel", name)
        pairs = {name: (theirs, ours)} if callable(theirs) else {}
        for method in _methods(theirs):
            if not hasattr(ours, method):
                found[f"{name}.{method}"] = ["is missing"]
                continue
            pairs[f"{name}.{method}"] = getattr(theirs, method), getattr(ours, method)
        for shown, (their_function, our_function) in pairs.items():
            expected, actual = _signature(their_function), _signature(our_function)
            if expected is None or not callable(our_function) or _is_alias(our_function):
                continue
            if actual is None:
                found[shown] = ["has no signature"]
            elif mismatches := _mismatches(expected, actual):
                found[shown] = mismatches
    assert found == {}


def _is_alias(thing: Any) -> bool:
    return not isinstance(thing, type) and hasattr(thing, "__origin__")


def test_properties_are_properties() -> None:
    for name in NAMES:
        theirs, ours = _find("grain", name), _find("bushel", name)
        for method in _methods(theirs):
            if isinstance(inspect.getattr_static(theirs, method), property):
                ours_static = inspect.getattr_static(ours, method, None)
                assert ours_static is not None and not inspect.isfunction(ours_static), (
                    f"{name}.{method}"
                )


# What bushel adds at the top, so that the shortest spelling works.


def test_all_names_exist_and_are_listed() -> None:
    import bushel

    for path in ("", "python", "experimental", "transforms"):
        module = _module("bushel", path)
        assert sorted(set(module.__all__)) == sorted(module.__all__)
        assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert bushel.__version__ == ".".join(map(str, bushel.__version_info__))
