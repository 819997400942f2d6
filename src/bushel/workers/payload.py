"""Pickles the pipeline for workers, once; the error names the step that cannot be pickled.

Large arrays (a source in memory) are not part of the pickle. They are beside it in the same memory,
which every worker maps: there is one copy for all of them, and a worker that writes to its arrays
changes only its own. Arrays in a file are not copied at all; workers open the file.
"""

import io
import mmap
import os
import pickle
import struct
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.core.in_grains_place import for_worker
from bushel.core.memory_file import aligned, create_unnamed, file_of, map_file
from bushel.core.node import Source
from bushel.errors import UnpicklableError
from bushel.sources.read_records import SequenceNode
from bushel.transport.link import Link, set_apart
from bushel.transport.own_classes import ByValue, marked_classes
from bushel.transport.rows import pack_values, unpack_values
from bushel.transport.unsendable import ITERATOR, UnsendableError, kind_of, output_of
from bushel.transport.unsendable_holder import holder_of

_TAIL = struct.Struct("<qq")  # The start of the layout's pickle, and its size.
_AT_A_TIME = 1 << 26
# Smaller arrays are part of the pickle: placing them costs more than copying.
_IN_PICKLE = 1 << 12


_Cached = type(lru_cache(int))


class PayloadPart(NamedTuple):
    """A step of a pipeline: its name, and the objects that it has besides its inputs."""

    label: str
    values: Sequence[Any]
    is_source: bool = False


def part_of(node: Any) -> PayloadPart:
    """A step by itself."""
    names = list(getattr(type(node), "__dataclass_fields__", {}))
    values = [getattr(node, name) for name in names if name not in ("input", "parts", "parents")]
    return PayloadPart(node.label, values, isinstance(node, Source))


class Luggage(NamedTuple):
    """The payload for workers on other machines: nothing in it is in files of this process."""

    prepare: bytes
    pickled: bytes
    # Large arrays, outside of the pickle.
    buffers: list[memoryview]
    # Kept, as otherwise the marks of classes that come back would be invalid.
    classes: list[type]


def luggage_of(value: Any, prepare: Any, parts: Sequence[PayloadPart]) -> Luggage:
    """Pickles a value for workers on other machines; the arguments are those of a `Payload`."""
    first, _ = _dump(for_worker(prepare), [PayloadPart("worker_init_fn", [prepare])], None)
    pickled, buffers = _dump(value, parts, None)
    return Luggage(first, pickled, buffers, marked_classes())


class Payload:
    """A file in memory with everything that a worker needs."""

    def __init__(self, value: Any, prepare: Any, parts: Sequence[PayloadPart] = ()) -> None:
        """Pickles a value; `parts` names its components, for errors.

        A worker loads `prepare` before the value, which may import a lot.
        """
        first = PayloadPart("worker_init_fn", [prepare])
        self._prepare, _ = _dump(for_worker(prepare), [first], [])
        # Other files that workers need.
        self.files: list[int] = []
        pickled, buffers = _dump(value, parts, self.files)
        spans = []
        end = 0
        for buffer in [*buffers, memoryview(pickled)]:
            spans.append((end, buffer.nbytes))
            end = aligned(end + buffer.nbytes)
        layout = pickle.dumps(spans)
        self._classes = marked_classes()
        self.size = end + len(layout) + _TAIL.size
        self.descriptor = create_unnamed(self.size)
        for (start, _), buffer in zip(spans, [*buffers, memoryview(pickled)], strict=True):
            _write(self.descriptor, buffer, start)
        _write(self.descriptor, memoryview(layout), end)
        _write(self.descriptor, memoryview(_TAIL.pack(end, len(layout))), end + len(layout))

    def send(self, link: Link) -> None:
        """Sends it to a worker."""
        link.send(self._prepare)
        for number in self.files:
            link.send_file(number, number)
        link.send_file(-1, self.descriptor)

    def close(self) -> None:
        """Closes the file; workers that have it keep it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        while self.files:
            os.close(self.files.pop())


# In a worker: the files that came with the payload, by their numbers in the trainer.
_files: dict[int, int] = {}


def load_first(link: Link) -> Any:
    """In a worker: waits for the part that comes before everything else, and loads it."""
    return pickle.loads(link.receive())


def load(link: Link) -> Any:
    """Waits for the rest of a payload and reads it."""
    number, descriptor = link.receive_file()
    while number >= 0:
        _files[number] = descriptor
        number, descriptor = link.receive_file()
    size = os.fstat(descriptor).st_size
    memory = np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_COPY), dtype=np.uint8)
    os.close(descriptor)
    layout_start, layout_size = _TAIL.unpack(memory[size - _TAIL.size :].tobytes())
    spans = pickle.loads(memory[layout_start : layout_start + layout_size].tobytes())
    *buffers, pickled = (memory[start : start + count] for start, count in spans)
    return pickle.loads(pickled.tobytes(), buffers=buffers)


def _write(descriptor: int, buffer: memoryview, offset: int) -> None:
    done = 0
    while done < buffer.nbytes:
        done += os.pwrite(descriptor, buffer[done : done + _AT_A_TIME], offset + done)


def _dump(
    value: Any, parts: Sequence[PayloadPart], files: list[int] | None
) -> tuple[bytes, list[memoryview]]:
    """Pickles a value, without large arrays; adds open files that it needs to `files`.

    If that is None the value is for another machine, and arrays in shared memory are sent by value.
    """
    allowed: set[int] = set()
    while True:
        buffers: list[memoryview] = []
        file = io.BytesIO()
        pickler = _Pickler(file, protocol=5, buffer_callback=set_apart(buffers, _IN_PICKLE))
        pickler.files, pickler.allowed = files, allowed
        try:
            pickler.dump(value)
        except Exception as error:
            # The object at which pickling failed.
            culprit = pickler.last
            part, holder = _holder_among(parts, culprit)
            of_source = part is not None and part.is_source and id(culprit) not in allowed
            if of_source and kind_of(type(culprit)) is ITERATOR:
                # It may be unrelated to the failure, and Python can pickle it (which it tries).
                allowed.add(id(culprit))
                continue
            label = "this pipeline" if part is None else f"`{part.label}`"
            raise UnpicklableError(
                f"{label} cannot be sent to worker processes: {_reason(culprit, holder, error)}, "
                "or use worker_count=0."
            ) from error
        return file.getvalue(), buffers


def _holder_among(
    parts: Sequence[PayloadPart], wanted: Any
) -> tuple[PayloadPart | None, tuple[str, bool] | None]:
    """The part of a pipeline that has an object, and the object's name there."""
    for part in parts:
        if any(value is wanted for value in part.values):
            return part, None
        holder = holder_of(part.values, wanted)
        if holder is not None:
            return part, holder
    return None, None


def _reason(culprit: Any, holder: tuple[str, bool] | None, error: Exception) -> str:
    """What cannot be sent, why, and what to write instead."""
    kind = kind_of(type(culprit))
    name, is_it = holder or ("what it is given", True)
    if kind is None:
        has = "is" if is_it else "holds"
        return (
            f"{name} {has} a `{type(culprit).__name__}` that cannot be pickled ({error}). Make it "
            "in the function, on first use"
        )
    has = f"is {kind.name}" if is_it else f"has {kind.name} in it"
    return f"{name} {has}, and {kind.why}. {kind.instead}"


class _Pickler(ByValue):
    """Pickles objects without an importable name by value, and arrays in files by file."""

    files: list[int] | None
    # The `id` of objects that are sent although they would be refused elsewhere.
    allowed: set[int]
    # The object examined last.
    last: Any = None

    def reducer_override(self, obj: Any) -> Any:
        # First the common case: there may be a hundred thousand of these, which need no checks.
        if type(obj) is np.ndarray and obj.base is None and (made := _small(obj)) is not None:
            return made
        self.last = obj
        kind = kind_of(type(obj))
        if kind is not None and id(obj) not in self.allowed:
            output = output_of(obj)
            if output is None:
                raise UnsendableError(kind)
            return output
        if isinstance(obj, np.ndarray):
            found = self._of_array(obj)
            if found is not None:
                return found
        if isinstance(obj, _Cached) and obj.__module__ == "__main__":
            # By default it is pickled by name, and a worker has no such name.
            return _cached, (obj.__wrapped__, obj.cache_parameters())
        if type(obj) is SequenceNode and type(obj.source) is list:
            # A hundred thousand small records are slow to pickle, and each worker would have a
            # copy. As columns they are neither.
            return _sequence_of, (pack_values(obj.source),)
        return super().reducer_override(obj)

    def _of_array(self, array: npt.NDArray[Any]) -> Any:
        if array.base is not None:  # Otherwise it owns its memory, which is in no file.
            on_file = _file_of(array)
            if on_file is not None:
                return _open_array, on_file
            shared = None if self.files is None else _shared_file_of(array)
            if shared is not None:
                return _map_array, self._kept(*shared)
        return _small(array)

    def _kept(self, descriptor: int, *where: Any) -> tuple[Any, ...]:
        """Keeps a file open for the workers; each once, however many arrays are in it."""
        assert self.files is not None
        for kept in self.files:
            if os.path.sameopenfile(kept, descriptor):
                return kept, *where
        self.files.append(os.dup(descriptor))
        return self.files[-1], *where


def _small(array: npt.NDArray[Any]) -> "tuple[Any, ...] | None":
    """A constructor for a small array, in half the time of numpy's own.

    A source in memory may have a hundred thousand of them, and the first batch waits for each.
    """
    dtype = array.dtype
    if type(array) is not np.ndarray or not 0 < array.nbytes < _IN_PICKLE or dtype.hasobject:
        return None
    flags = array.flags
    if not flags.c_contiguous:
        return None
    contents = array.tobytes()
    return np.ndarray, (array.shape, dtype, bytearray(contents) if flags.writeable else contents)


def _file_of(array: npt.NDArray[Any]) -> "tuple[Any, ...] | None":
    """The file and place of an array, if all of it is in a file."""
    base: Any = array
    while isinstance(base, np.ndarray) and not (
        isinstance(base, np.memmap) and isinstance(base.base, mmap.mmap)
    ):
        base = base.base
    if not isinstance(base, np.memmap) or base.filename is None or base.mode == "c":
        return None
    if not array.flags.c_contiguous or array.dtype.hasobject or not array.size:
        return None
    offset = base.offset + array.ctypes.data - base.ctypes.data
    kind = np.memmap if isinstance(array, np.memmap) else np.ndarray
    # A writable one stays writable; a worker writes to its own copy.
    mode = "c" if array.flags.writeable else "r"
    return os.path.abspath(base.filename), array.dtype, offset, array.shape, kind, mode


def _shared_file_of(array: npt.NDArray[Any]) -> "tuple[Any, ...] | None":
    if type(array) is not np.ndarray or array.dtype.hasobject or not array.size:
        return None
    found = file_of(array)
    if found is None:
        return None
    return *found, array.dtype, array.shape, array.strides


@cache
def _mapped(number: int) -> npt.NDArray[np.uint8]:
    return map_file(_files[number], writable=False)


def _map_array(
    number: int, offset: int, dtype: Any, shape: Sequence[int], strides: Sequence[int]
) -> npt.NDArray[Any]:
    return np.ndarray(shape, dtype, _mapped(number), offset, strides)


def _cached(function: Any, parameters: dict[str, Any]) -> Any:
    return lru_cache(**parameters)(function)


def _sequence_of(packed: Any) -> SequenceNode:
    return SequenceNode(unpack_values(packed))


def _open_array(
    path: str, dtype: Any, offset: int, shape: Sequence[int], kind: type, mode: Any
) -> npt.NDArray[Any]:
    mapped: Any = np.memmap(path, dtype=dtype, mode=mode, offset=offset, shape=tuple(shape))
    return mapped if kind is np.memmap else np.asarray(mapped)
