"""Records of shards that are lists: number of parts, length of each, and the parts."""

import struct


def parts_of_list(data: bytes, at: int = 0) -> list[bytes]:
    """The parts of a list whose number of parts is at byte `at`.

    >>> parts_of_list(bytes([2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]) + b"abc")
    [b'a', b'bc']
    """
    (number,) = struct.unpack_from("<I", data, at)
    sizes = struct.unpack_from(f"<{number}I", data, at + 4)
    start, parts = at + 4 + 4 * number, []
    for size in sizes:
        parts.append(data[start : start + size])
        start += size
    if start != len(data):
        raise ValueError(f"a list should have {start:,} bytes, and has {len(data):,}")
    return parts
