"""Gives single objects a derived class (recorded, traced, counted), without overhead for others.

An iterator that is recorded or traced, and a stream whose pulls are counted, become objects of a
class derived from their own. A check at each element would cost all other iterators time; a wrapper
around the object would be in the way of code that checks its class.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeAlias

# Makes a class derived from a given one.
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
    """Gives an object its own class again, unless its class was changed once more since."""
    own = type(thing).__bases__[0]
    if type(thing) is _derived(derive, own):
        thing.__class__ = own


@functools.cache
def _derived(derive: Derive, kind: type) -> Any:
    return derive(kind)
