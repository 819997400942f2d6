"""Gives single objects more behaviour by a derived class, without overhead for others.

An iterator that is recorded or traced, and a stream whose pulls are counted, are made objects of a
class derived from their own. To ask at each element of each iterator whether it is recorded would
cost those that are not; something around it would be in the way of whoever knows its class.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

# Makes a class derived from the one that it is given.
Derive: TypeAlias = Callable[[Any], Any]


def become(thing: Any, derive: Derive, **fields: Any) -> None:
    """Makes an object one of a class derived from its own, with the fields of that class.

    >>> class Door:
    ...     def open(self):
    ...         return "open"
    >>> def creaking(kind):
    ...     class Creaking(kind):
    ...         def open(self):
    ...             return f"{self.sound}, {super().open()}"
    ...
    ...     return Creaking
    >>> door = Door()
    >>> become(door, creaking, sound="creak")
    >>> door.open()
    'creak, open'
    >>> become_again(door, creaking)
    >>> door.open(), type(door) is Door
    ('open', True)
    """
    vars(thing).update(fields)
    kind: type = type(thing)
    thing.__class__ = _derived(derive, kind)


def become_again(thing: Any, derive: Derive) -> None:
    """Makes it one of its own class again, unless it has become one of yet another since."""
    own = type(thing).__bases__[0]
    if type(thing) is _derived(derive, own):
        thing.__class__ = own


@functools.cache
def _derived(derive: Derive, kind: type) -> Any:
    return derive(kind)
