"""Small classes that are only their fields.

Generating methods takes most of the time that it takes to make a dataclass, and bushel has
dozens and should import quickly. So only `__init__` is generated.
"""

from dataclasses import FrozenInstanceError, dataclass, field
from typing import Any, NoReturn, TypeVar, dataclass_transform

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def frozen(cls: C) -> C:
    """Makes a dataclass that is immutable and compared by identity."""
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
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
    """Makes a dataclass for what is made often: not even frozen, which costs at each one."""
    return dataclass(slots=True, eq=False, repr=False)(cls)  # type: ignore[return-value]
