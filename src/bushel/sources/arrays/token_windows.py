"""`TokenDataSource`: windows of tokens over flat files of integers."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bushel.core.block import unstack
from bushel.core.positions import Keys
from bushel.errors import FileError, PlanError
from bushel.files.paths import expand, without_query
from bushel.sources.arrays.mapped import MappedFile, MappedFiles
from bushel.sources.arrays.npy import layout_of
from bushel.sources.keyed import KeyedSource, by_part, shown_files


class TokenDataSource(KeyedSource):
    """Windows of `length` tokens over files that are nothing but tokens.

    Window i of a file begins at token `offset + i * stride`. No window reaches from one file
    into the next, and tokens at the end of a file that fill none are left out.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> np.arange(10, dtype=np.uint16).tofile(f"{folder.name}/tokens.bin")
    >>> source = TokenDataSource(f"{folder.name}/tokens.bin", 4, dtype=np.uint16)
    >>> len(source), source[1]
    (2, array([4, 5, 6, 7], dtype=uint16))
    >>> source = TokenDataSource(f"{folder.name}/tokens.bin", 4, dtype="uint16", targets=True)
    >>> source[1]["inputs"].tolist(), source[1]["targets"].tolist()
    ([4, 5, 6, 7], [5, 6, 7, 8])
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder, or a sequence of them: raw binary files, or `.npy`
            files of one array with one axis.
        length: How many tokens a window has.
        dtype: The type of the tokens in raw files. An `.npy` file says it itself.
        stride: From the start of a window to the start of the next. By default as long as a
            window; with less, windows overlap.
        offset: How many tokens at the start of each file are passed over, for example a
            header.
        targets: Whether records are dicts with `inputs`, the window, and `targets`, the same
            window one token further on. It then reads one token more.

    Files are mapped into memory, as those of `NumpyDataSource` are. Each window is a copy.
    """

    def __init__(
        self,
        paths: Any,
        length: int,
        *,
        dtype: npt.DTypeLike | None = None,
        stride: int | None = None,
        offset: int = 0,
        targets: bool = False,
    ) -> None:
        self._length, self._offset, self._targets = length, offset, targets
        self._stride = length if stride is None else stride
        _check_count("length", length, 1)
        _check_count("stride", self._stride, 1)
        _check_count("offset", offset, 0)
        found = expand(paths)
        self._files = MappedFiles(found)
        self._parts = [self._part(path, dtype) for path in found]
        kinds = {part.dtype.newbyteorder("="): part.path for part in self._parts}
        if len(kinds) > 1:
            shown = ", ".join(f"{path!r} has {kind}" for kind, path in kinds.items())
            raise PlanError(f"the tokens of a source are of one type, and {shown}.")
        (self._dtype,) = kinds
        self._ends: Keys = np.cumsum([part.windows for part in self._parts], dtype=np.int64)
        if not len(self):
            longest = max(part.tokens for part in self._parts)
            raise PlanError(
                f"no file has the {offset + length + targets:,} tokens that one window takes: the "
                f"longest of {len(found)} has {longest:,}."
            )

    def _part(self, path: str, dtype: npt.DTypeLike | None) -> "_TokenFile":
        file = self._files.get(path)
        start, size = 0, len(file.bytes)
        if without_query(path).lower().endswith(".npy"):
            layout = layout_of(file.bytes, repr(path))
            if len(layout.shape) != 1:
                raise FileError(
                    f"{path!r} is an array of shape {layout.shape}, and tokens have one axis. "
                    "Arrays of several are for `NumpyDataSource`."
                )
            if dtype is not None and layout.dtype != np.dtype(dtype):
                raise PlanError(f"{path!r} has tokens of {layout.dtype}, and dtype={dtype!r}.")
            kind, start = layout.dtype, layout.start
            size = layout.shape[0] * kind.itemsize
        elif dtype is None:
            raise PlanError(
                f"{path!r} is a raw file, which does not say of which type its tokens are. Add "
                "`dtype=numpy.uint16`, or whichever it is."
            )
        else:
            kind = np.dtype(dtype)
        if kind.kind not in "iu":
            raise PlanError(f"tokens are integers, and those of {path!r} would be {kind}.")
        if size % kind.itemsize:
            raise FileError(
                f"{path!r} has {size:,} bytes, which is no whole number of {kind} tokens of "
                f"{kind.itemsize} bytes. Was it cut short, or is it of another type?"
            )
        tokens = size // kind.itemsize
        spare = tokens - self._offset - self._length - self._targets
        return _TokenFile(path, kind, start, tokens, max(0, spare // self._stride + 1))

    @property
    def paths(self) -> list[str]:
        """The files, in the order of their windows."""
        return [part.path for part in self._parts]

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _records(self, keys: Keys) -> list[Any]:
        return unstack(self._take(keys), len(keys))

    def read_columns(self, keys: Keys) -> Any:
        """Many windows, as one array (or two, with targets) with a row for each."""
        return self._take(self._checked(keys))

    def _take(self, keys: Keys) -> Any:
        if not self._targets:
            return self._windows(keys, 0)
        # Two arrays, not two views of one: masking some inputs must not change the targets.
        return {"inputs": self._windows(keys, 0), "targets": self._windows(keys, 1)}

    def _windows(self, keys: Keys, shift: int) -> npt.NDArray[Any]:
        taken: npt.NDArray[Any] | None = None
        for number, places, windows in by_part(keys, self._ends):
            part = self._parts[number]
            file = self._files.get(part.path)
            file.check()
            chosen = self._view(part, file, shift)[windows]
            if len(places) == len(keys):
                return np.ascontiguousarray(chosen, self._dtype)
            if taken is None:
                taken = np.empty((len(keys), self._length), self._dtype)
            taken[places] = chosen
        return np.empty((0, self._length), self._dtype) if taken is None else taken

    def _view(self, part: "_TokenFile", file: MappedFile, shift: int) -> npt.NDArray[Any]:
        """All windows of a file, as the rows of an array over it."""
        step = part.dtype.itemsize
        return np.ndarray(
            (part.windows, self._length),
            part.dtype,
            file.bytes.data,
            part.start + (self._offset + shift) * step,
            (self._stride * step, step),
        )

    def place_of(self, key: int) -> tuple[str, int, int]:
        """The file of a window, its number in it, and the byte at which it starts."""
        ((number, _, windows),) = by_part(self._checked([key]), self._ends)
        part, window = self._parts[number], int(windows[0])
        token = self._offset + window * self._stride
        return part.path, window, part.start + token * part.dtype.itemsize

    def __repr__(self) -> str:
        options = f", stride={self._stride:,}" * (self._stride != self._length)
        options += f", offset={self._offset:,}" * (self._offset != 0)
        options += ", targets=True" * self._targets
        return (
            f"TokenDataSource({shown_files(self.paths)}, {len(self):,} windows of "
            f"{self._length:,} {self._dtype}{options})"
        )


class _TokenFile(NamedTuple):
    """One file, and the number of windows in it."""

    path: str
    dtype: np.dtype[Any]
    start: int
    tokens: int
    windows: int


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise PlanError(f"`{name}` is a number of tokens, at least {least}, and got {value!r}.")
