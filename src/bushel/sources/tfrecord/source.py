"""`TFRecordDataSource`: records by key, parsed without TensorFlow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bushel.core.positions import Keys
from bushel.errors import PlanError, RecordError
from bushel.files.index import Columns
from bushel.files.local import ByteFile
from bushel.files.progress_line import ProgressLine
from bushel.sources.endings import TFRECORD
from bushel.sources.indexed import IndexedSource
from bushel.sources.tfrecord.crc import masked_crcs
from bushel.sources.tfrecord.damaged import scan_damaged
from bushel.sources.tfrecord.example import Features, check_features, parse_example
from bushel.sources.tfrecord.example_columns import parse_columns
from bushel.sources.tfrecord.scan import (
    FOOTER,
    HEADER,
    begins_with_record,
    headers_are_right,
    scan_records,
)


class TFRecordDataSource(IndexedSource):
    """The records of TFRecord files: bytes, or the features of `tf.train.Example`s.

    Where records begin is looked up once, and kept beside the file.

    >>> import pathlib, tempfile
    >>> from bushel.sources import encode_example, write_tfrecords
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = pathlib.Path(folder.name, "data.tfrecord")
    >>> write_tfrecords(path, [encode_example({"id": n, "text": b"abc"}) for n in range(3)])
    3
    >>> len(TFRecordDataSource(path)), len(TFRecordDataSource(path)[0])
    (3, 32)
    >>> TFRecordDataSource(path, parse="example")[2]
    {'id': array([2]), 'text': [b'abc']}
    >>> TFRecordDataSource(path, features={"id": (int, ()), "text": (bytes, ())})[2]
    {'id': np.int64(2), 'text': b'abc'}
    >>> folder.cleanup()

    Args:
        paths: A file, a glob, a folder (which stands for its files that end in .tfrecord,
            .tfrecords or .tfrec), or a sequence of these. Compressed files (.gz, .bz2, .xz,
            .zst) are unpacked once.
        verify: Whether the checksums of records are checked whenever they are read. With
            `pip install "bushel[tfrecord]"` that is many times as fast.
        parse: "example" to get the features of each `tf.train.Example`.
        features: Which features are wanted, as in `parse_example`.
    """

    endings = TFRECORD

    def __init__(
        self,
        paths: Any,
        *,
        verify: bool = True,
        parse: str | None = None,
        features: Features | None = None,
    ) -> None:
        if parse not in (None, "example"):
            raise PlanError(
                f"`parse` is 'example', or None for records as bytes, and not {parse!r}. For "
                "another format, write `MapDataset.source(TFRecordDataSource(paths)).map(parse)`."
            )
        self._verify = bool(verify)
        self._features = check_features(features)
        self._parse = parse is not None or features is not None
        super().__init__(paths)

    @property
    def kind(self) -> str:
        return "tfrecord"

    def is_plain(self, head: bytes) -> bool:
        return begins_with_record(head)

    def scan(self, file: ByteFile, progress: ProgressLine) -> Columns:
        try:
            return scan_records(file, progress)
        except RecordError as error:
            return scan_damaged(file, progress, error)

    def read_columns(self, keys: Keys) -> dict[str, Any] | None:
        """Many records as columns, where `features` are numbers in arrays of one shape."""
        shapes = None if self._features is None else self._features.shapes()
        if shapes is None or not len(keys):
            return None
        return parse_columns(self._many(keys, self._payloads), shapes)

    def _payloads(self, data: Sequence[bytes], file: int, records: Keys) -> list[bytes]:
        payloads = [record[HEADER:-FOOTER] for record in data]
        if self._verify:
            self._check_sums(list(data), payloads, file, records)
        return payloads

    def decode(self, data: Sequence[bytes], file: int, records: Keys) -> list[Any]:
        payloads = self._payloads(data, file, records)
        if not self._parse:
            return payloads
        features = self._features
        made = []
        for payload, record in zip(payloads, records.tolist(), strict=True):
            try:
                made.append(parse_example(payload, features))
            except RecordError as error:
                raise self._wrong(file, record, f"cannot be parsed: {error}") from None
        return made

    def _check_sums(
        self, data: list[bytes], payloads: list[bytes], file: int, records: Keys
    ) -> None:
        lengths = list(map(len, data))
        if min(lengths) < HEADER + FOOTER:
            raise self._cut_short(file, int(records[lengths.index(min(lengths))]))
        stored = np.frombuffer(b"".join([record[-FOOTER:] for record in data]), dtype="<u4")
        right = masked_crcs(payloads) == stored
        lengths_right = headers_are_right(data)
        if right.all() and lengths_right.all():
            return
        place = int((right & lengths_right).argmin())
        if lengths_right[place] and len(payloads[place]) < int.from_bytes(
            data[place][:8], "little"
        ):
            raise self._cut_short(file, int(records[place]))
        what = "length" if not lengths_right[place] else "data"
        problem = (
            f"is damaged: the checksum of its {what} is wrong. Get the file anew; `verify=False` "
            "reads what is there."
        )
        raise self._wrong(file, int(records[place]), problem)

    def _cut_short(self, file: int, record: int) -> RecordError:
        problem = "is cut short: the file ends before it does. Was the file copied as a whole?"
        return self._wrong(file, record, problem)
