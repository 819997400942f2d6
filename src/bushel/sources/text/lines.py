"""`TextLinesDataSource` and `JsonLinesDataSource`: lines of text and of JSON."""

import codecs
import json
from collections.abc import Sequence
from typing import Any, ClassVar

from bushel.core.positions import Keys
from bushel.errors import PlanError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.progress_line import ProgressLine
from bushel.sources.endings import JSON_LINES, TEXT
from bushel.sources.indexed import IndexedSource
from bushel.sources.text.scan import scan_lines


class LineSource(IndexedSource):
    """The common part of sources of lines."""

    # Blank lines that were left out: for each, the number of records before it.
    columns: ClassVar[tuple[str, ...]] = ("bounds", "skipped")

    def _name_of(self, number: int, record: int) -> str:
        return f"line {self.line_of(number, record):,}"

    def line_of(self, number: int, record: int) -> int:
        """The line of a record in a file, counted from 1."""
        skipped = self._open()[number].columns["skipped"]
        return record + 1 + int(skipped.searchsorted(record, side="right"))

    def _text_of(self, data: bytes, number: int, record: int, encoding: str) -> str:
        """Decodes one line; an error names the line."""
        try:
            return str(data, encoding)
        except UnicodeDecodeError as error:
            place = int(self._open()[number].columns["bounds"][record]) + error.start
            wrong = data[error.start : error.start + 4].hex(" ")
            problem = (
                f"is no text in {encoding}: {error.reason} at byte {place:,} of the file "
                f"({wrong}). Give the encoding that it was written in, as far as the source takes "
                "one."
            )
            raise self._wrong(number, record, problem) from None


class TextLinesDataSource(LineSource):
    r"""The lines of text files, as strings without their line breaks.

    Empty lines count. A line ends with a newline, or a carriage return and a newline; the last
    one with the file. Where lines begin is looked up once, and kept beside the file.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "poem.txt")
    >>> _ = path.write_text("roses are red\n\nviolets are blue")
    >>> source = TextLinesDataSource(path)
    >>> len(source), source[2], source.__getitems__([1, 0])
    (3, 'violets are blue', ['', 'roses are red'])
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder (which stands for its files that end in .txt or .text),
            or a sequence of these. Compressed files (.gz, .bz2, .xz, .zst) are unpacked once.
        encoding: One in which a newline is one byte, as in UTF-8; None to get bytes.
    """

    endings = TEXT
    columns = ("bounds",)

    def __init__(self, paths: Any, *, encoding: str | None = "utf-8") -> None:
        if encoding is not None:
            _check_encoding(encoding)
        self._encoding = encoding
        super().__init__(paths)

    @property
    def kind(self) -> str:
        return "lines"

    def scan(self, file: ByteFile, progress: ProgressLine) -> Columns:
        return scan_lines(file, progress)

    def line_of(self, number: int, record: int) -> int:
        return record + 1

    def decode(self, data: Sequence[bytes], file: int, records: Keys) -> list[Any]:
        lines = [
            line[: -2 if line.endswith(b"\r\n") else -1] if line.endswith(b"\n") else line
            for line in data
        ]
        encoding = self._encoding
        if encoding is None:
            return lines
        try:
            return [str(line, encoding) for line in lines]
        except UnicodeDecodeError:
            return [
                self._text_of(line, file, record, encoding)
                for line, record in zip(lines, records.tolist(), strict=True)
            ]


class JsonLinesDataSource(LineSource):
    r"""The values of JSON files that have one on each line.

    Blank lines do not count. Where lines begin is looked up once, and kept beside the file.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "data.jsonl")
    >>> _ = path.write_text('{"text": "one", "label": 1}\n\n{"text": "two", "label": 2}\n')
    >>> source = JsonLinesDataSource(path)
    >>> len(source), source[1]
    (2, {'text': 'two', 'label': 2})
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder (which stands for its files that end in .jsonl, .ndjson,
            .jsonlines or .json), or a sequence of these. Compressed files (.gz, .bz2, .xz, .zst)
            are unpacked once.
    """

    endings = (*JSON_LINES, ".json")

    @property
    def kind(self) -> str:
        return "jsonl"

    def scan(self, file: ByteFile, progress: ProgressLine) -> Columns:
        return scan_lines(file, progress, _is_white)

    def decode(self, data: Sequence[bytes], file: int, records: Keys) -> list[Any]:
        try:
            return list(map(_DECODE, map(bytes.decode, data)))
        except (ValueError, RecursionError):
            return [
                self._value(line, file, record)
                for line, record in zip(data, records.tolist(), strict=True)
            ]

    def _value(self, data: bytes, number: int, record: int) -> Any:
        text = self._text_of(data, number, record, "utf-8")
        try:
            return _DECODE(text)
        except json.JSONDecodeError as error:
            start = int(self._open()[number].columns["bounds"][record])
            place = start + len(text[: error.pos].encode())
            shown = text[max(0, error.pos - 20) : error.pos + 20].strip()
            # (Some of Python's messages end in "at" already.)
            what = error.msg.removesuffix(" at")
            problem = f"is no JSON: {what} at byte {place:,} of the file, near {shown!r}."
            raise self._wrong(number, record, problem) from None
        except RecursionError:
            problem = "is JSON that is nested too deeply for Python."
            raise self._wrong(number, record, problem) from None
        except ValueError as error:  # Numbers with more digits than Python allows.
            raise self._wrong(number, record, f"cannot be read: {error}.") from None


_DECODE = json.JSONDecoder().decode


def _is_white(line: bytes) -> bool:
    return not line.strip(b" \t\r\n")


def _check_encoding(encoding: str) -> None:
    try:
        one_byte = "\n".encode(encoding) == b"\n" and codecs.lookup(encoding)._is_text_encoding
    except LookupError:
        raise PlanError(f"there is no encoding {encoding!r}; most text is in 'utf-8'.") from None
    if not one_byte:
        raise PlanError(
            f"lines cannot be told apart in {encoding!r}, where a newline is not a byte of its "
            "own. Write the files anew in UTF-8."
        )
