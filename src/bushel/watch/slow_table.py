"""The report's table of the slowest blocks of a run."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from bushel.files.paths import without_query
from bushel.watch.durations import duration
from bushel.watch.html import table as html_table
from bushel.watch.plain_text import number

_HEAD = ("took", "step", "runs", "from position", "first record", "bytes", "file or source")


class SlowBlock(NamedTuple):
    """A call that took long, and the first record that it was about."""

    # The name of the step, and whether workers did it.
    step: str
    place: str
    seconds: float
    # The position at which the block, or the task of a worker, began.
    at: int
    # None, each, where nobody knows without reading.
    source: str | None = None
    key: Any = None
    file: str | None = None
    record: int | None = None
    start: int | None = None
    stop: int | None = None


def table_of_slow_blocks(blocks: Sequence[SlowBlock], private: bool) -> str:
    """A table of blocks; the keys of records are in it where it need not be `private`."""
    if not blocks:
        return ""
    head = _HEAD if private else (*_HEAD, "key")
    rows = [
        _row(_without_query(block)) if private else [*_row(block), _known(block.key)]
        for block in blocks
    ]
    return html_table(head, rows, right=(0, 3, 4))


def public(block: SlowBlock, private: bool) -> dict[str, Any]:
    """The same as plain values."""
    told = (_without_query(block) if private else block)._asdict()
    if private:
        del told["key"]
    elif not isinstance(told["key"], (int, float, str, type(None))):
        told["key"] = repr(told["key"])
    return told


def _without_query(block: SlowBlock) -> SlowBlock:
    """The same; the address of its file has no query.

    (In a text, nobody knows where an address with blanks in it ends.)
    """
    return block if block.file is None else block._replace(file=without_query(block.file))


def _row(block: SlowBlock) -> list[str]:
    stretch = ""
    if block.start is not None:
        stop = "" if block.stop is None else number(block.stop - 1)
        stretch = f"{number(block.start)}..{stop}"
    return [
        duration(block.seconds),
        block.step,
        block.place,
        number(block.at),
        _known(block.record),
        stretch,
        block.file or block.source or "not known without reading",
    ]


def _known(value: Any) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, int) else repr(value)
