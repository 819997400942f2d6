"""The formats of `ds.write`, by name or file ending: how a file of encoded elements is written."""

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bushel.core.frozen import frozen
from bushel.errors import PlanError
from bushel.sources import endings
from bushel.sources.tfrecord.write import write_tfrecords
from bushel.sources.written.coding import Coding
from bushel.write.table_rows import schema_of_columns, write_arrow, write_parquet
from bushel.write.writers import write_array_record, write_lines, write_tar


@frozen
class FileFormat:
    """A format: its name, the ending of its files, and their writer."""

    name: str
    endings: tuple[str, ...]
    # Writes encoded elements to a file of that name.
    write: Callable[[str, Iterable[Any], Coding], object]

    @property
    def ending(self) -> str:
        """The ending of files by default: that of the format."""
        return f".{self.name}" if f".{self.name}" in self.endings else self.endings[0]


def _write_tokens(path: str, arrays: Iterable[Any], _: Coding) -> None:
    with open(path, "wb", buffering=1 << 20) as file:
        for array in arrays:
            file.write(np.ascontiguousarray(array).data)


FILE_FORMATS = {
    known.name: known
    for known in (
        FileFormat(
            "arrayrecord",
            endings.ARRAY_RECORD,
            lambda path, records, _: write_array_record(path, records),
        ),
        FileFormat(
            "tfrecord", endings.TFRECORD, lambda path, records, _: write_tfrecords(path, records)
        ),
        FileFormat(
            "parquet",
            endings.PARQUET,
            lambda path, rows, coding: write_parquet(path, rows, schema_of_columns(coding.columns)),
        ),
        FileFormat(
            "arrow",
            (".arrow", ".feather"),
            lambda path, rows, coding: write_arrow(path, rows, schema_of_columns(coding.columns)),
        ),
        FileFormat("tar", (".tar",), lambda path, samples, _: write_tar(path, samples)),
        FileFormat("jsonl", endings.JSON_LINES, lambda path, lines, _: write_lines(path, lines)),
        FileFormat("tokens", (".bin", ".tokens"), _write_tokens),
    )
}


def file_format(to: str, name: str | None) -> FileFormat:
    """The format of a name, or the one that the ending of a path tells."""
    if name is not None:
        if name not in FILE_FORMATS:
            raise PlanError(
                f"there is no format {name!r} to write; there are {', '.join(FILE_FORMATS)}."
            )
        return FILE_FORMATS[name]
    ending = os.path.splitext(to)[1].lower()
    for known in FILE_FORMATS.values():
        if ending in known.endings:
            return known
    shown = ", ".join(known.ending for known in FILE_FORMATS.values())
    raise PlanError(
        f"{to!r} does not say by its ending ({shown}) in which format to write. Add `format=`, one "
        f"of {', '.join(FILE_FORMATS)}."
    )
