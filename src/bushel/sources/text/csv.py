"""`CsvDataSource`: rows of CSV and TSV files; headers, columns, conversions, and their errors."""

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bushel.core.positions import Keys
from bushel.errors import PlanError, RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.paths import without_query
from bushel.files.progress_line import ProgressLine
from bushel.sources.endings import CSV
from bushel.sources.text.lines import LineSource
from bushel.sources.text.scan import scan_lines

Convert = Callable[[str], Any]
# Appended to rows, to see whether the last one ended before it.
_BEHIND = ""


class CsvDataSource(LineSource):
    r"""The rows of CSV and TSV files, as dicts of strings, or of what `columns` makes of them.

    Blank lines do not count. Quoted values may have line breaks. Where rows begin is looked up
    once, and kept beside the file.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "data.csv")
    >>> _ = path.write_text('x,label,note\n1.5,3,"two\nlines"\n2.5,4,\n')
    >>> CsvDataSource(path)[0]
    {'x': '1.5', 'label': '3', 'note': 'two\nlines'}
    >>> CsvDataSource(path, columns={"x": float, "label": int})[1]
    {'x': 2.5, 'label': 4}
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder (which stands for its files that end in .csv, .tsv or
            .tab), or a sequence of these. Compressed files (.gz, .bz2, .xz, .zst) are unpacked
            once.
        columns: Which columns to read: their names, or functions by name that make a value of
            its text.
        has_header: Whether the first row of each file has the names of the columns.
        names: The names of the columns, where files have no header. Without both, rows are
            lists, and `columns` go by number, from 0.
        delimiter: What stands between values; by default a tab in files that end in .tsv or
            .tab, and a comma in others.
        quote: What values with special characters are put in; None where nothing is special.
    """

    endings = CSV

    def __init__(
        self,
        paths: Any,
        *,
        columns: Mapping[Any, Convert] | Iterable[Any] | None = None,
        has_header: bool = True,
        names: Sequence[str] | None = None,
        delimiter: str | None = None,
        quote: str | None = '"',
    ) -> None:
        for what, value in (("delimiter", delimiter), ("quote", quote)):
            if value is not None and (len(value) != 1 or value in "\r\n" or not value.isascii()):
                raise PlanError(f"`{what}` is one ASCII character, and not {value!r}.")
        if has_header and names is not None:
            raise PlanError("`names` are for files without a header: give `has_header=False`.")
        self._has_header, self._delimiter, self._quote = bool(has_header), delimiter, quote
        self._names = None if names is None else list(names)
        super().__init__(paths)
        if has_header:
            self._names = self._names_of_all()
        self._converts = self._checked(columns)

    @property
    def kind(self) -> str:
        return f"csv(quote={self._quote!r}, header={self._has_header})"

    @property
    def names(self) -> list[str] | None:
        """The names of the columns, if they have any."""
        return None if self._names is None else list(self._names)

    def scan(self, file: ByteFile, progress: ProgressLine) -> Columns:
        quote = None if self._quote is None else ord(self._quote)
        columns = scan_lines(file, progress, _is_empty, quote)
        if self._has_header and len(columns["bounds"]) > 1:
            # The bytes before the first row are the header.
            return {
                "bounds": columns["bounds"][1:],
                "skipped": (columns["skipped"] - 1).clip(0),
            }
        return columns

    def line_of(self, number: int, record: int) -> int:
        # Counts rows; if values have line breaks, an editor counts more lines.
        return super().line_of(number, record) + self._has_header

    def _name_of(self, number: int, record: int) -> str:
        return f"row {self.line_of(number, record):,}"

    def _names_of_all(self) -> list[str]:
        """The names in the headers of the files, which must be the same."""
        names: list[str] | None = None
        for number, opened in enumerate(self._open()):
            end = int(opened.columns["bounds"][0])
            text = self._files.get(opened.path).read(0, end).decode("utf-8-sig", "replace").strip()
            if not text:
                continue  # An empty file has no header, and no rows.
            try:
                found: list[str] = next(self._reader([text], number), [])
            except csv.Error as error:
                raise RecordError(
                    f"the header of {self._paths[number]!r} is no row of CSV: {error} (Lines end "
                    "with a newline, and not with a carriage return alone.)"
                ) from None
            if len(set(found)) < len(found):
                raise RecordError(
                    f"the header of {self._paths[number]!r} names a column twice: {found}. Give "
                    "`has_header=False` and `names`, and leave the header out of the file."
                )
            if names is not None and found != names:
                raise RecordError(
                    f"the columns of {self._paths[number]!r} are {found}, and those of the files "
                    f"before it {names}. Make a source of each kind of file."
                )
            names = found
        return names or []

    def _checked(self, columns: Any) -> list[tuple[Any, int, Convert | None]] | None:
        """For each column that is read: its name, its place, its converter."""
        if columns is None:
            return None
        if isinstance(columns, (str, bytes)):
            raise PlanError(f"`columns` are several, and not {columns!r}: give `[{columns!r}]`.")
        wanted = dict(columns) if isinstance(columns, Mapping) else dict.fromkeys(columns)
        found = []
        for name, convert in wanted.items():
            if convert is not None and not callable(convert):
                raise PlanError(
                    f"`columns` has functions by name, and {name!r} has {convert!r}. Write "
                    f"`{{{name!r}: float}}`, or a list of names."
                )
            if self._names is None and isinstance(name, int) and name >= 0:
                found.append((name, name, convert))
            elif self._names is not None and name in self._names:
                found.append((name, self._names.index(name), convert))
            elif len(self) or self._names:
                there = "numbers, from 0" if self._names is None else f"{self._names}"
                raise PlanError(
                    f"{self._paths[0]!r} has no column {name!r}; the columns are {there}."
                )
        return found

    def _reader(self, texts: Iterable[str], number: int) -> Any:
        delimiter = self._delimiter
        if delimiter is None:
            path = without_query(self._open()[number].path).lower()
            delimiter = "\t" if path.endswith((".tsv", ".tab")) else ","
        if self._quote is None:
            return csv.reader(texts, delimiter=delimiter, quoting=csv.QUOTE_NONE)
        return csv.reader(texts, delimiter=delimiter, quotechar=self._quote)

    def decode(self, data: Sequence[bytes], file: int, records: Keys) -> list[Any]:
        try:
            texts = [str(row.rstrip(b"\r\n"), "utf-8") for row in data]
            rows = list(self._reader([*texts, _BEHIND], file))
            if len(rows) == len(data) + 1:
                return self._made(rows[:-1])
        except Exception:  # Perhaps from a user's function. Below, the error names the row.
            pass
        return [
            self._row(row, file, record) for row, record in zip(data, records.tolist(), strict=True)
        ]

    def _made(self, rows: list[list[str]]) -> list[Any]:
        if self._converts is None:
            names = self._names
            if names is None:
                return rows
            return [dict(zip(names, row, strict=True)) for row in rows]
        converts = self._converts
        expected = None if self._names is None else len(self._names)
        made = []
        for row in rows:
            if expected is not None and len(row) != expected:
                raise ValueError
            made.append(
                {
                    name: row[place] if convert is None else convert(row[place])
                    for name, place, convert in converts
                }
            )
        return made

    def _row(self, data: bytes, number: int, record: int) -> Any:
        """Makes one row; an error names the row."""
        text = self._text_of(data.rstrip(b"\r\n"), number, record, "utf-8")
        if len(text) > csv.field_size_limit():
            # The limit applies to the whole program, so it is raised only as far as a row needs it.
            csv.field_size_limit(len(text))
        try:
            rows = list(self._reader([text, _BEHIND], number))[:-1]
        except csv.Error as error:
            rows, why = [], str(error)
        else:
            why = "a quoted value does not end"
        if len(rows) != 1:
            problem = (
                f"is no row of CSV: {why}. Is there a {self._quote} that quotes nothing, in it or "
                "above? Then give `quote=None`."
            )
            raise self._wrong(number, record, problem)
        (row,) = rows
        if self._names is not None and len(row) != len(self._names):
            problem = (
                f"has {len(row)} value{'s' * (len(row) != 1)}, and there are {len(self._names)} "
                f"columns: {text!r:.100}."
            )
            raise self._wrong(number, record, problem)
        for name, place, convert in self._converts or ():
            if place >= len(row):
                problem = f"has {len(row)} values, and none with the number {name}: {text!r:.100}."
                raise self._wrong(number, record, problem)
            try:
                convert is None or convert(row[place])
            except Exception as error:
                problem = f"has {row[place]!r:.100} in column {name!r}: {error}."
                raise self._wrong(number, record, problem) from error
        return self._made(rows)[0]


def _is_empty(line: bytes) -> bool:
    return not line.strip(b"\r\n")
