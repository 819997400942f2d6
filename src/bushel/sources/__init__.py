"""Where records come from."""

from typing import TYPE_CHECKING

from bushel.lazy import lazily
from bushel.sources.base import RandomAccessDataSource
from bushel.sources.memory import RangeDataSource

if TYPE_CHECKING:
    from bushel.sources.array_record import ArrayRecordDataSource
    from bushel.sources.shared import SharedMemoryDataSource

__all__ = [
    "ArrayRecordDataSource",
    "RandomAccessDataSource",
    "RangeDataSource",
    "SharedMemoryDataSource",
]

_HOMES = {
    "ArrayRecordDataSource": "sources.array_record:ArrayRecordDataSource",
    "SharedMemoryDataSource": "sources.shared:SharedMemoryDataSource",
}
__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
