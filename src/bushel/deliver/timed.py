"""The iterator of a pipeline whose steps are counted and timed."""

from dataclasses import replace
from typing import Any

from bushel.deliver.figures import Figures
from bushel.deliver.iterator import StreamIterator, T
from bushel.run.step_times import StepTimes


class TimedIterator(StreamIterator[T]):
    """Hands out the elements of a stream, and knows what each step took."""

    def __init__(self, times: StepTimes, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._times = times

    def _figures(self) -> Figures:
        times = self._times
        return replace(
            super()._figures(),
            steps=tuple(times.totals()),
            threads=tuple(describe() for describe in times.threads),
            workers=tuple(figures() for figures in times.workers),
        )
