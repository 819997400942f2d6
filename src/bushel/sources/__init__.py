"""Where records come from."""

from bushel.sources.base import RandomAccessDataSource
from bushel.sources.memory import RangeDataSource

__all__ = ["RandomAccessDataSource", "RangeDataSource"]
