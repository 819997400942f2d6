"""`iterator.report()`: gathers the contents of the report about a run."""

from typing import Any

from bushel.deliver.iterator import StreamIterator
from bushel.provenance.slow_blocks import slow_blocks
from bushel.watch.report import RunSoFar, write_report
from bushel.watch.stats import stats_of


def report_on(iterator: StreamIterator[Any], path: str, private: bool) -> None:
    """Writes a page about the run of an iterator so far."""
    with iterator._alone():
        waits, figures = iterator._waits.history(), iterator._figures()
        history = iterator._history(figures)
    run = RunSoFar(
        stats_of(figures, iterator._node),
        iterator.explain(),
        waits,
        history,
        slow_blocks(iterator._node, figures.steps or ()),
    )
    write_report(path, run, private)
