"""Options for worker processes, and arrays that processes share by name."""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily
from bushel.core.options import MultiprocessingOptions

if TYPE_CHECKING:
    from bushel.transport.shared_array import SharedMemoryArray, SharedMemoryArrayMetadata

__all__ = ["MultiprocessingOptions", "SharedMemoryArray", "SharedMemoryArrayMetadata"]

_HOMES = {name: f"transport.shared_array:{name}" for name in __all__[1:]}
__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
