"""File name endings of formats, and the first bytes of compressed files."""

from typing import NamedTuple

ARRAY_RECORD = (".array_record", ".arrayrecord")
ARROW = (".arrow", ".feather", ".arrows", ".ipc")
BAGZ = (".bagz", ".bag")
CSV = (".csv", ".tsv", ".tab")
IMAGES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
JSON_LINES = (".jsonl", ".ndjson", ".jsonlines")
NUMPY = (".npy", ".npz")
PARQUET = (".parquet", ".parq", ".pq")
TAR = (".tar", ".tgz")
TEXT = (".txt", ".text")
TFRECORD = (".tfrecord", ".tfrecords", ".tfrec")


class Compression(NamedTuple):
    """A compression: its name, the ending of its files, and their first bytes."""

    name: str
    ending: str
    begins: bytes


COMPRESSIONS = (
    Compression("gzip", ".gz", b"\x1f\x8b\x08"),
    Compression("bzip2", ".bz2", b"BZh"),
    Compression("xz", ".xz", b"\xfd7zXZ\x00"),
    Compression("zstd", ".zst", b"\x28\xb5\x2f\xfd"),
)
COMPRESSED = tuple(compression.ending for compression in COMPRESSIONS)


def compression_of(head: bytes) -> Compression | None:
    """The compression of a file that begins with these bytes.

    >>> compression_of(b"BZh91AY").name, compression_of(b"plain text")
    ('bzip2', None)
    """
    return next((known for known in COMPRESSIONS if head.startswith(known.begins)), None)
