"""CRC-32C, the checksum of TFRecord files: by a C library, or by numpy for many records at once.

The checksum is linear: it is the exclusive or of the checksums of each byte alone, with zeros in
place of the others. So all bytes are looked up at once, each in the table for its distance from the
end, and the results are combined.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Words: TypeAlias = npt.NDArray[np.uint32]

# The polynomial, lowest bit first.
_POLYNOMIAL = 0x82F63B78
# Longer records are cut into pieces of this size. The tables then have 1 MB, which stays in the
# cache.
_PIECE = 1024
_ALL_ONES = 0xFFFFFFFF
_MASK = 0xA282EAD8


def masked_crcs(records: Sequence[bytes]) -> _Words:
    """The checksums of records, masked as in TFRecord files.

    >>> [hex(crc) for crc in masked_crcs([b"123456789"])]
    ['0xc78ab0e5']
    """
    value = _library()
    if value is not None:
        crcs = np.fromiter(map(value, records), np.uint32, len(records))
    else:
        crcs = crcs_by_numpy(records)
    return _masked(crcs)


def masked_crcs_at_every_byte(data: bytes) -> _Words:
    """The checksums of the eight bytes at each place of the data that has twelve.

    >>> masked_crcs_at_every_byte(b"-01234567----")[1] == masked_crcs([b"01234567"])[0]
    np.True_
    """
    table = _tables()[0]
    count = len(data) - 11
    bytes_ = np.frombuffer(data, dtype=np.uint8)
    crcs = np.full(count, _ALL_ONES, dtype=np.uint32)
    for place in range(8):
        crcs = table[(crcs ^ bytes_[place : place + count]) & 255] ^ (crcs >> np.uint32(8))
    return _masked(~crcs)


def _masked(crcs: _Words) -> _Words:
    turned = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return turned + np.uint32(_MASK)


@cache
def _library() -> Callable[[bytes], int] | None:
    try:
        import google_crc32c
    except ImportError:
        return None
    # Without its C extension it is slower than numpy.
    fast = google_crc32c.implementation == "c"
    value: Callable[[bytes], int] | None = google_crc32c.value if fast else None
    return value


def crcs_by_numpy(records: Sequence[bytes]) -> _Words:
    """The checksums of records, not masked."""
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    crcs = np.zeros(len(records), dtype=np.uint32)
    for number in np.flatnonzero(lengths > _PIECE).tolist():
        crcs[number] = _long(records[number])
    # Beginning with ones is the same as beginning with zeros and inverting the first four bytes.
    # Records with fewer than four bytes are done one by one.
    for number in np.flatnonzero(lengths < 4).tolist():
        crcs[number] = _by_hand(records[number])
    least = 4
    while least <= _PIECE:
        most = min(2 * least - 1, _PIECE)
        some = np.flatnonzero((lengths >= least) & (lengths <= most))
        if len(some):
            crcs[some] = _alike([records[number] for number in some.tolist()], lengths[some])
        least *= 2
    return crcs


def _by_hand(data: bytes) -> int:
    table = _tables()[0]
    crc = _ALL_ONES
    for byte in data:
        crc = int(table[(crc ^ byte) & 255]) ^ (crc >> 8)
    return crc ^ _ALL_ONES


def _alike(records: Sequence[bytes], lengths: npt.NDArray[np.int64]) -> _Words:
    """The checksums of short records with similar lengths."""
    width = int(lengths.max())
    # Zeros in front change nothing.
    joined = bytearray().join([record.rjust(width, b"\0") for record in records])
    rows = np.frombuffer(joined, dtype=np.uint8).reshape(-1, width)
    lines, starts = np.arange(len(rows)), width - lengths
    for byte in range(4):
        rows[lines, starts + byte] ^= 255
    return ~_folded(rows)


def _folded(rows: npt.NDArray[np.uint8]) -> _Words:
    places = np.arange(rows.shape[1] - 1, -1, -1, dtype=np.int64) << 8
    crcs = np.empty(len(rows), dtype=np.uint32)
    tables = _tables().ravel()
    # A few rows at a time, so that their lookups (eight bytes for each byte) stay in the cache.
    for start in range(0, len(rows), 64):
        found = tables.take(rows[start : start + 64] + places)
        crcs[start : start + 64] = np.bitwise_xor.reduce(found, 1)
    return crcs


def _long(data: bytes) -> int:
    pieces = -(-len(data) // _PIECE)
    # Zeros in front change nothing; a power of two can be combined in halves.
    pieces = 1 << (pieces - 1).bit_length()
    padded = np.zeros(pieces * _PIECE, dtype=np.uint8)
    first = len(padded) - len(data)
    padded[first:] = np.frombuffer(data, dtype=np.uint8)
    padded[first : first + 4] ^= 255
    crcs = np.zeros(pieces, dtype=np.uint32)
    used = first // _PIECE
    crcs[used:] = _folded(padded[used * _PIECE :].reshape(-1, _PIECE))
    level = 0
    while len(crcs) > 1:
        crcs = _shifted(crcs[0::2], level) ^ crcs[1::2]
        level += 1
    return int(crcs[0]) ^ _ALL_ONES


def _shifted(crcs: _Words, level: int) -> _Words:
    """The checksums after 2**level further pieces of zeros."""
    table = _shift_tables(level)
    shifted: _Words = table[0][crcs & 255]
    for byte in range(1, 4):
        shifted ^= table[byte][(crcs >> np.uint32(8 * byte)) & 255]
    return shifted


@cache
def _tables() -> _Words:
    """Row d has the checksum of each of the 256 bytes with d zeros after it."""
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = (first >> np.uint32(1)) ^ np.where(first & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    tables = np.empty((_PIECE, 256), dtype=np.uint32)
    tables[0] = first
    for row in range(1, _PIECE):
        before = tables[row - 1]
        tables[row] = first[before & 255] ^ (before >> np.uint32(8))
    return tables


@cache
def _shift_tables(level: int) -> _Words:
    if level:
        half = _shift_tables(level - 1)
        return np.stack([_shifted(row, level - 1) for row in half])
    # A checksum with zeros after it is the checksum of its four bytes as data.
    return _tables()[_PIECE - 1 : _PIECE - 5 : -1].copy()
