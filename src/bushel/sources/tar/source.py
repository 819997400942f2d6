"""`TarDataSource`: tar files of samples, as in WebDataset."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bushel.core.positions import Keys
from bushel.errors import PlanError, RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile, LocalFile
from bushel.files.paths import is_remote
from bushel.files.progress_line import ProgressLine
from bushel.sources.endings import TAR
from bushel.sources.indexed import IndexedSource
from bushel.sources.tar.damaged import scan_damaged
from bushel.sources.tar.decode import DECODERS, Decoder
from bushel.sources.tar.members import Lend, Member, Window, members_of_sample, stretches
from bushel.sources.tar.names import split_name
from bushel.sources.tar.plain_members import PlainMembers
from bushel.sources.tar.runs_ahead import RunsAhead
from bushel.sources.tar.samples import Samples

_CHUNK, _SMALL = 1 << 22, 1 << 14
# The interval of progress reports, in members that are found one by one.
_TOLD = 256
# A remote call costs as much as some megabytes.
_REMOTE_CHUNK = _REMOTE_SMALL = 1 << 23


class TarDataSource(IndexedSource):
    """The samples of tar files: neighbours whose names are the same up to the first dot.

    A sample is a dict: "__key__" is that part of the name, and each file is under the rest of
    its name, in small letters: `dogs/17.jpg` and `dogs/17.cls` are the sample
    {"__key__": "dogs/17", "jpg": ..., "cls": ...}. Files without a dot, links and folders do
    not count. Names are only keys: nothing is unpacked to disk. Where samples begin is looked
    up once, and kept beside the file.

    >>> import io, pathlib, tarfile, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "data.tar")
    >>> with tarfile.open(path, "w") as tar:
    ...     for name, data in {"a.txt": b"one", "a.cls": b"3", "b.txt": b"two"}.items():
    ...         member = tarfile.TarInfo(name)
    ...         member.size = len(data)
    ...         tar.addfile(member, io.BytesIO(data))
    >>> source = TarDataSource(path)
    >>> len(source), source[0]
    (2, {'__key__': 'a', 'txt': b'one', 'cls': b'3'})
    >>> TarDataSource(path, decode=True)[0]
    {'__key__': 'a', 'txt': 'one', 'cls': 3}
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder (which stands for its files that end in .tar), or a
            sequence of these. Compressed files (.tar.gz, .tgz, .tar.bz2, .tar.xz, .tar.zst) are
            unpacked once.
        decode: True to make values of the common kinds of files: json, jsonl, txt, cls, id,
            index, npy, npz, jpg, png and others. A mapping has functions of bytes by ending,
            and True stands for the common one: {"jpg": True, "depth": read_depth}. The
            ending is all that follows the first dot, or if that is not known, the last dot.
    """

    endings = TAR
    # Which samples cannot be read.
    columns = ("bounds", "damaged")

    def __init__(
        self, paths: Any, *, decode: bool | Mapping[str, Decoder | Literal[True]] | None = None
    ) -> None:
        self._decoders = _checked(decode)
        super().__init__(paths)

    @property
    def kind(self) -> str:
        return "tar"

    def scan(self, file: ByteFile, progress: ProgressLine) -> Columns:
        try:
            bounds = self._scan_whole(file, progress)
        except RecordError as error:
            return scan_damaged(file, progress, error)
        return {"bounds": bounds, "damaged": np.empty(0, dtype=np.int64)}

    def _scan_whole(self, file: ByteFile, progress: ProgressLine) -> Keys:
        chunk, small = (_REMOTE_CHUNK, _REMOTE_SMALL) if is_remote(file.path) else (_CHUNK, _SMALL)
        samples = Samples(file.path)
        if not isinstance(file, LocalFile):
            window = Window(file.read, file.size, chunk, small)
            _gather(stretches(window, file.path), samples, progress)
            return samples.bounds()
        window = Window(file.read, file.size, chunk, small, _lending(file, chunk))
        ahead = RunsAhead(file, window, chunk)
        try:
            _gather(stretches(window, file.path, known=ahead), samples, progress)
        finally:
            ahead.end()
        return samples.bounds()

    def decode(self, data: Sequence[bytes], file: int, records: Keys) -> list[Any]:
        damaged = self._open()[file].columns["damaged"]
        if len(damaged) and (wrong := np.isin(records, damaged)).any():
            problem = (
                "is damaged: a header in it is wrong, or the file ends before it does. Get the "
                "file anew."
            )
            raise self._wrong(file, int(records[wrong.argmax()]), problem)
        return [
            self._sample(sample, file, record)
            for sample, record in zip(data, records.tolist(), strict=True)
        ]

    def _sample(self, data: bytes, number: int, record: int) -> dict[str, Any]:
        sample: dict[str, Any] = {}
        for start, stop, name in members_of_sample(data, self._paths[number]):
            parts = split_name(name)
            if parts is not None:
                sample["__key__"], ending = parts
                sample[ending] = self._value(ending, data[start:stop], name, number, record)
        return sample

    def _value(self, ending: str, value: bytes, name: str, number: int, record: int) -> Any:
        decoders = self._decoders
        decoder = decoders.get(ending) or decoders.get(ending.rpartition(".")[2])
        if decoder is None:
            return value
        try:
            return decoder(value)
        except ImportError:
            raise
        except Exception as error:
            problem = f"has a file {name!r} that cannot be decoded: {error}"
            raise self._wrong(number, record, problem) from error

    def _name_of(self, number: int, record: int) -> str:
        return f"sample {record:,}"


def _gather(
    found: Iterable[PlainMembers | Member], samples: Samples, progress: ProgressLine
) -> None:
    """Groups members into samples as they are found."""
    for number, members in enumerate(found):
        if isinstance(members, PlainMembers):
            samples.add_many(members)
            progress.to(int(members.stops[-1]))
            continue
        samples.add(members)
        if not number % _TOLD:
            progress.to(members[0])


def _lending(file: LocalFile, most: int) -> Lend:
    """Reads into the same memory again and again: fresh memory costs more than the bytes."""
    memory = np.empty(min(most, file.size), np.uint8)

    def lend(start: int, stop: int) -> memoryview:
        part = memory[: stop - start]
        file.read_into(start, part)
        return part.data

    return lend


def _checked(decode: Any) -> dict[str, Decoder]:
    if decode is None or decode is False:
        return {}
    if decode is True:
        return DECODERS
    if not isinstance(decode, Mapping):
        raise PlanError(
            f"`decode` is True, or a mapping from endings to functions, and not {decode!r:.100}."
        )
    found: dict[str, Decoder] = {}
    for ending, decoder in decode.items():
        ending = ending.lower().removeprefix(".")
        if decoder is True:
            if ending not in DECODERS:
                raise PlanError(
                    f"there is no decoder for {ending!r}; there are some for {sorted(DECODERS)}. "
                    "Give a function of bytes."
                )
            decoder = DECODERS[ending]
        if not callable(decoder):
            raise PlanError(f"`decode` has {decoder!r} for {ending!r}, which is no function.")
        found[ending] = decoder
    return found
