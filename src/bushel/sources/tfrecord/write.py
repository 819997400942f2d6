"""`write_tfrecords`: writes TFRecord files."""

import os
import struct
from collections.abc import Iterable
from itertools import islice

from bushel.files.whole import written_whole
from bushel.sources.tfrecord.crc import masked_crcs

_AT_ONCE = 256


def write_tfrecords(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes records to a TFRecord file, and returns their number.

    The file appears once it is complete.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tfrecords(f"{folder}/a.tfrecord", [b"one", b"two"])
    2
    """
    path = os.fspath(path)
    count, remaining = 0, iter(records)
    with written_whole(path) as out:
        while some := list(islice(remaining, _AT_ONCE)):
            out.write(_framed(some))
            count += len(some)
    return count


def _framed(records: list[bytes]) -> bytes:
    """Records with their lengths and checksums."""
    lengths = [struct.pack("<Q", len(record)) for record in records]
    pieces = []
    sums = zip(masked_crcs(lengths).tolist(), masked_crcs(records).tolist(), strict=True)
    for length, record, (length_sum, data_sum) in zip(lengths, records, sums, strict=True):
        pieces += [length, struct.pack("<I", length_sum), record, struct.pack("<I", data_sum)]
    return b"".join(pieces)
