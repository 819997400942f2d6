"""Small classes that are only their fields.

Generating the comparison and the text of a dataclass takes most of the time that it takes
to make one, and bushel has dozens and should import quickly.
"""

from dataclasses import dataclass
from typing import TypeVar, dataclass_transform

C = TypeVar("C", bound=type)


@dataclass_transform(frozen_default=True, eq_default=False)
def frozen(cls: C) -> C:
    """Makes a dataclass that is immutable and compared by identity."""
    return dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)  # type: ignore[return-value]


@dataclass_transform(eq_default=False)
def plain(cls: C) -> C:
    """Makes a dataclass for what is made often: not even frozen, which costs at each one."""
    return dataclass(slots=True, eq=False, repr=False)(cls)  # type: ignore[return-value]
