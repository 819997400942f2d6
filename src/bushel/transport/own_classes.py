"""Sends classes without an importable name (of the main module, or local) by value.

cloudpickle sends such a class by value, and marks it, so that a process that sees the mark
again has one class and not two. But it also sets everything that is in the class once more:
an element that comes back from a worker would put the trainer's class, with the counters and
settings that the program keeps there, back to what they were when the worker was started. So
a class that came from the trainer goes back as its mark alone.
"""

import io
import types
from typing import Any

import cloudpickle
from cloudpickle import cloudpickle as internals

from bushel.transport.exact import exactly
from bushel.transport.unsendable import refuse_file


class ByValue(cloudpickle.Pickler):  # type: ignore[misc, no-any-unimported, unused-ignore]
    """Pickles as cloudpickle does, but so that values and classes stay what they are."""

    def reducer_override(self, obj: Any) -> Any:
        reduced = exactly(obj)
        if reduced is not NotImplemented:
            return reduced
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and reduced is not NotImplemented and "__slots__" in vars(obj):
            return _with_slots(obj, reduced)
        return reduced


class OwnClasses(ByValue):
    """The same, but classes that came from elsewhere go by their marks."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type):
            mark = _came_with.get(obj)
            if mark is not None:
                return _class_of, (mark,)
        return refuse_file(obj) or super().reducer_override(obj)


def _with_slots(cls: type, reduced: Any) -> Any:
    """Has a class made with its slots.

    cloudpickle makes one whose objects have a `__dict__`, and names slots that are none: what
    such an object has would be pickled twice, and not fit an object of the class that it is of.
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
    """The classes that were sent by value so far: to be kept, or their marks mean nothing."""
    return list(getattr(internals, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", ()))


_came_with: dict[type, str] = {}


def remember_classes() -> None:
    """Takes note of the classes that came so far; called when something was received."""
    known = getattr(internals, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", None)
    if known is not None:
        _came_with.update(known)


def _class_of(mark: str) -> type:
    found: type = internals._DYNAMIC_CLASS_TRACKER_BY_ID[mark]
    return found
