"""`frozen` and `plain`: small classes that are only their fields.

Most of the time that it takes to make a dataclass goes into generating its methods. bushel has
dozens of dataclasses, of which a program uses some, and should import quickly. So only `__init__`
is generated, and only when the first object is made.
"""

from collections.abc import Callable, Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from inspect import get_annotations
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform, get_origin

C = TypeVar("C", bound=type)
T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen(cls: C) -> C:
    """Makes a dataclass that is immutable and compared by identity."""
    made: Any = _with_slots(cls)
    made.__setattr__, made.__delattr__ = _set_once, _refuse
    return made  # type: ignore[no-any-return]


def _set_once(self: object, name: str, value: object) -> None:
    if hasattr(self, name):
        _refuse(self, name)
    object.__setattr__(self, name, value)


def _refuse(self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"{type(self).__name__}.{name} cannot be changed")


@dataclass_transform(eq_default=False)
def plain(cls: C) -> C:
    """Makes a dataclass for objects that are made often: not frozen, which costs time for each."""
    return _with_slots(cls)


_Field = type(field())


class _ClassFields:
    """The fields of a class, in the form that `dataclasses` gives them, made when asked for."""

    def __init__(self, kinds: dict[str, Any], defaults: dict[str, Any]) -> None:
        self.kinds, self.defaults = kinds, defaults
        # The class, once it is made; and the fields as `dataclasses` made them.
        self.owner: Any = None
        self._made: Any = None

    def __get__(self, instance: object, owner: type) -> Any:
        if self._made is None:
            # A class with the fields and nothing else, since the real one already has slots.
            body = {"__annotations__": self.kinds, "__module__": self.owner.__module__}
            bare = type(self.owner.__name__, (), {**body, **self.defaults, "__doc__": "-"})
            self._made = dataclass(eq=False, repr=False, match_args=False)(bare)
        return self._made.__dataclass_fields__

    def first_init(self) -> Callable[..., None]:
        """An `__init__` that makes the real one, and is never called again."""

        def __init__(new: object, *args: Any, **kwargs: Any) -> None:
            self.owner.__init__ = self._init()
            self.owner.__init__(new, *args, **kwargs)

        return __init__

    def _init(self) -> Callable[..., None]:
        """The `__init__` that `dataclasses` would make, in a third of the time."""
        # A first batch waits for a dozen of these, in two processes.
        defaults = self.defaults
        if any(isinstance(value, _Field) or not value.__hash__ for value in defaults.values()):
            self.__get__(None, self.owner)  # It knows what to do about those, or to refuse them.
            return self._made.__init__  # type: ignore[no-any-return]
        given = [f"{name}=_defaults[{name!r}]" if name in defaults else name for name in self.kinds]
        # A thousand lanes are several thousand nodes, whose fields are set here for the first time.
        sets_once = self.owner.__setattr__ is _set_once
        line = "_set(self, {0!r}, {0})" if sets_once else "self.{0} = {0}"
        lines = [line.format(name) for name in self.kinds] or ["pass"]
        made: dict[str, Any] = {}
        text = f"def __init__(self, {', '.join(given)}):\n " + "\n ".join(lines)
        exec(text, {"_defaults": defaults, "_set": object.__setattr__}, made)
        init: Any = made["__init__"]
        init.__qualname__ = f"{self.owner.__name__}.__init__"
        return init  # type: ignore[no-any-return]


def _with_slots(cls: C) -> C:
    """The same class with a slot for each field; the rest of a dataclass comes when needed."""
    of_class: object = ClassVar
    annotations = get_annotations(cls)
    own = {name: kind for name, kind in annotations.items() if get_origin(kind) is not of_class}
    kinds: dict[str, Any] = {}
    defaults: dict[str, Any] = {}
    taken: set[str] = set()
    for base in reversed(cls.__mro__[1:]):
        inherited = base.__dict__.get("__dataclass_fields__")
        if isinstance(inherited, _ClassFields):
            kinds.update(inherited.kinds)
            defaults.update(inherited.defaults)
        taken.update(base.__dict__.get("__slots__", ()))
    for name in own:
        defaults.pop(name, None)
    defaults.update((name, cls.__dict__[name]) for name in own if name in cls.__dict__)
    fields = _ClassFields({**kinds, **own}, defaults)
    body = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in own and name not in ("__dict__", "__weakref__")
    }
    body["__slots__"] = tuple(name for name in own if name not in taken)
    body["__dataclass_fields__"] = fields
    body.setdefault("__init__", fields.first_init())
    fields.owner = type(cls)(cls.__name__, cls.__bases__, body)
    fields.owner.__qualname__ = cls.__qualname__
    return fields.owner  # type: ignore[no-any-return]


# Pickle writes referenced objects by nested calls, some four for each object. So each object of a
# chain has the one that many before it written first. Then calls nest no deeper than this number,
# or than the length of the chain divided by it.
_STRIDE = 32


def written_behind(end: T, reduced: Any, parents_of: Callable[[T], Sequence[T]]) -> Any:
    """What `__reduce_ex__` returns, for the end of a chain that may be long.

    `reduced` is what it would return otherwise.
    """
    before = end
    for _ in range(_STRIDE):
        parents = parents_of(before)
        if len(parents) != 1:
            return reduced
        (before,) = parents
    if not isinstance(reduced, tuple):
        return reduced
    make, arguments, *rest = reduced
    return _made_behind, (before, make, arguments), *rest


def _made_behind(before: Any, make: Callable[..., T], arguments: tuple[Any, ...]) -> T:
    return make(*arguments)
