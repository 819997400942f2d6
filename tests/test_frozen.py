"""Small classes: what is made later is what a dataclass would have at once."""

import importlib
import inspect
import pickle
import pkgutil
from dataclasses import FrozenInstanceError, dataclass, field, fields, is_dataclass, replace
from types import ModuleType
from typing import Any

import pytest

import bushel
from bushel.core.frozen import frozen, plain
from bushel.core.node import Node


@frozen
class Point:
    x: int
    y: int = 2


@frozen
class Place(Point):
    y: int
    name: str = "here"


@plain
class Note:
    text: str
    pages: tuple[int, ...] = ()


def test_fields_of_the_classes_above_come_first() -> None:
    assert [field.name for field in fields(Place)] == ["x", "y", "name"]
    place = Place(1, 5)
    assert (place.x, place.y, place.name) == (1, 5, "here")
    assert [field.name for field in fields(place)] == ["x", "y", "name"]
    with pytest.raises(TypeError, match="y"):
        Place(1)  # type: ignore[call-arg]


def test_one_that_is_frozen_stays_what_it_is() -> None:
    point = Point(1)
    with pytest.raises(FrozenInstanceError, match=r"Point\.x cannot be changed"):
        point.x = 3  # type: ignore[misc]
    assert replace(point, y=4).y == 4
    assert point.y == 2


def test_a_plain_one_may_change_but_has_no_other_attributes() -> None:
    note = Note("first")
    note.text = "second"
    with pytest.raises(AttributeError):
        note.other = 1  # type: ignore[attr-defined]
    assert not hasattr(note, "__dict__")


def test_one_that_was_unpickled_before_any_was_made() -> None:
    """It comes without `__init__`, and its fields are known all the same."""

    @plain
    class Local:
        text: str = "none"

    local = Local.__new__(Local)
    local.text = "unpickled"
    assert replace(local).text == "unpickled"
    assert pickle.loads(pickle.dumps(Note("a", (1,)))).pages == (1,)


def test_none_is_made_for_nothing() -> None:
    @frozen
    class Unused:
        size: int

    assert "args" in inspect.signature(Unused).parameters
    Unused(1)
    assert list(inspect.signature(Unused).parameters) == ["size"]


def test_what_makes_one_is_what_a_dataclass_would_have() -> None:
    nothing = object()

    @plain
    class Many:
        first: int
        second: Any = None
        third: tuple[int, ...] = ()
        fourth: Any = nothing
        fifth: list[int] = field(default_factory=list)

    @plain
    class Few:
        first: int
        second: Any = nothing

    @plain
    class None_:
        pass

    none: Any = None_()
    assert not fields(none)
    few = Few(1)
    assert few.second is nothing and Few(first=1, second=2).second == 2
    expected = inspect.signature(dataclass(type("Few", (), {**_body(Few), "second": nothing})))
    found = inspect.signature(Few)
    assert [(one.name, one.kind, one.default) for one in found.parameters.values()] == [
        (one.name, one.kind, one.default) for one in expected.parameters.values()
    ]
    with pytest.raises(TypeError, match=r"Few\.__init__\(\) missing 1 required .* 'first'"):
        Few()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'third'"):
        Few(1, third=2)  # type: ignore[call-arg]
    one, other = Many(1), Many(2)
    assert (one.second, one.third, one.fourth, one.fifth) == (None, (), nothing, [])
    assert one.fifth is not other.fifth


def _body(cls: type) -> dict[str, Any]:
    return {"__annotations__": inspect.get_annotations(cls)}


def _modules() -> list[ModuleType]:
    core = ["run", "lanes", "order", "batch", "transforms", "workers"]
    core += ["sources.memory", "sources.read_records"]
    found = []
    for package in core:
        module = importlib.import_module(f"bushel.{package}")
        found.append(module)
        for info in pkgutil.iter_modules(getattr(module, "__path__", ())):
            found.append(importlib.import_module(f"{module.__name__}.{info.name}"))
    return found


def _is_one_of_them(value: Any) -> bool:
    return (
        isinstance(value, type)
        and value.__module__.startswith(bushel.__name__)
        and type(value.__dict__.get("__dataclass_fields__")).__name__ == "_ClassFields"
    )


def test_all_of_them_are_what_a_dataclass_would_be() -> None:
    made = {
        value for module in _modules() for value in vars(module).values() if _is_one_of_them(value)
    }
    assert any(issubclass(cls, Node) for cls in made) and len(made) > 100
    for cls in made:
        assert is_dataclass(cls)
        names = [field.name for field in fields(cls)]
        slots = {name for base in cls.__mro__ for name in base.__dict__.get("__slots__", ())}
        assert slots >= set(names)
        annotated = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
        assert annotated >= set(names)


def test_a_default_that_all_would_share_is_refused() -> None:
    @plain
    class Shared:
        items: list[int] = []  # noqa: RUF012

    with pytest.raises(ValueError, match="mutable default"):
        Shared()
