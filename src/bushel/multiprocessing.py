"""Options for worker processes."""

from bushel.options import MultiprocessingOptions

__all__ = ["MultiprocessingOptions"]
