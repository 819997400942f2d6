"""What the pipelines of the contract are built of, and may vary."""

import itertools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bushel import (
    IterDataset,
    MapDataset,
    ReadOptions,
)
from bushel.experimental import (
    RepeatIterDataset,
)
from tests.contract.parts import (
    ManySource,
    RowSource,
    columns,
    is_not_third,
    with_name,
)

INLINE = ReadOptions(0, 0)


@dataclass(frozen=True)
class Kit:
    """What contracts vary: the kind of source, which records are broken, how to read."""

    kind: str = "rows"
    broken: tuple[int, ...] = ()
    read: ReadOptions = field(default_factory=lambda: INLINE)

    def source(self, size: int) -> MapDataset[Any]:
        if self.kind == "columns":
            return MapDataset.source(columns(size))
        made = {"rows": RowSource, "many": ManySource}[self.kind](size, self.broken)
        return MapDataset.source(made)

    def stream(self, size: int) -> IterDataset[Any]:
        return self.source(size).to_iter_dataset(self.read)


_folder = tempfile.TemporaryDirectory(prefix="bushel-cache-")
_files = itertools.count()


def a_new_file() -> str:
    """The path of a file that is not there yet."""
    return f"{_folder.name}/{next(_files)}"


def cached_on_disk(kit: Kit, path: str) -> Any:
    """Two epochs, of which the second is read from a file."""
    cached = kit.stream(13).filter(is_not_third).map(with_name).cache(path)
    return RepeatIterDataset(cached, 2).batch(3)


Build = Callable[[Kit], Any]
