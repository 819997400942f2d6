"""The statistics of a dataset that was iterated to its end."""

from typing import Any

import bushel
from bushel.watch.stats import Stats


def counted(dataset: Any) -> Stats:
    with bushel.iterate(dataset) as iterator:
        for _ in iterator:
            pass
        stats: Stats = iterator.stats()
    return stats
