"""States: described, compared with their pipeline, saved and restored.

The names are those that Orbax is used with; each loads Orbax when it is first used.
"""

from typing import TYPE_CHECKING

from bushel.core.lazy_names import lazily

if TYPE_CHECKING:
    from bushel.checkpoint.mixture_counts import PartCounts, mix_counts
    from bushel.checkpoint.orbax import CheckpointHandler, CheckpointRestore, CheckpointSave
    from bushel.lanes.merge import merge_states
    from bushel.sources.pinned import Pinned as pinned

__all__ = [
    "CheckpointHandler",
    "CheckpointRestore",
    "CheckpointSave",
    "PartCounts",
    "merge_states",
    "mix_counts",
    "pinned",
]

_HOMES = {
    "CheckpointHandler": "checkpoint.orbax:CheckpointHandler",
    "CheckpointRestore": "checkpoint.orbax:CheckpointRestore",
    "CheckpointSave": "checkpoint.orbax:CheckpointSave",
    "PartCounts": "checkpoint.mixture_counts:PartCounts",
    "merge_states": "lanes.merge:merge_states",
    "mix_counts": "checkpoint.mixture_counts:mix_counts",
    "pinned": "sources.pinned:Pinned",
}
__getattr__ = lazily(globals(), _HOMES)


def __dir__() -> list[str]:
    return __all__
