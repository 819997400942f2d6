"""Sends classes without an importable name (of the main module, or local) by value.

cloudpickle sends such a class by value, with a mark by which a process that receives it again has
one class and not two. But it also sets all attributes of the class once more: an element that comes
back from a worker would reset the trainer's class, with the counters and settings that the program
keeps there, to the values at the worker's start. So a class that came from the trainer is sent back
as its mark alone.
"""

import io
import types
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as internals

from bushel.transport.exact import exactly
from bushel.transport.unsendable import refuse_file


class ByValue(cloudpickle.Pickler):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Pickles as cloudpickle does, but keeps values and classes as they are."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = exactly(obj)
        if reduced is not NotImplemented:
            return reduced
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and reduced is not NotImplemented and "__slots__" in vars(obj):
            return _with_slots(obj, reduced)
        return reduced


class OwnClasses(ByValue):
    """The same, but classes that came from the other process are sent as their marks."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            mark = _came_with.get(obj)
            if mark is not None:
                return _class_of, (mark,)
        return refuse_file(obj) or super().reducer_override(obj)


def _with_slots(cls: type, reduced: Any) -> Any:
    """Makes the receiver create a class with its slots.

    cloudpickle would make a class whose objects have a `__dict__`, and whose slots are only names:
    the attributes of such an object would be pickled twice, and not fit an object of the original
    class.
    """
    make, arguments, state, *rest = reduced
    if make is not internals._make_skeleton_class:
        return reduced  # An enumeration.
    kind, name, bases, contents, *mark = arguments
    contents = {**contents, "__slots__": vars(cls)["__slots__"]}
    attributes, slots = state
    kept = {
        key: value
        for key, value in attributes.items()
        if key != "__slots__" and not isinstance(value, types.MemberDescriptorType)
    }
    return make, (kind, name, bases, contents, *mark), (kept, slots), *rest


def dump_own(value: Any) -> bytes:
    """Pickles a value by itself."""
    file = io.BytesIO()
    OwnClasses(file, protocol=5).dump(value)
    return file.getvalue()


def marked_classes() -> list[type]:
    """The classes sent by value so far, to be kept, as otherwise their marks become invalid."""
    return list(getattr(internals, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ()))


_came_with: dict[type, str] = {}


def remember_classes() -> None:
    """Takes note of the classes received so far; called after each message."""
    known = getattr(internals, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", None)
    if known is not None:
        _came_with.update(known)


def _class_of(mark: str) -> type:
    found: type = internals._DYNAMIC_CLASS_TRACKER_BY_ID[mark]
    return found
