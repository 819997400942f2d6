"""Numbers that are found while a pipeline runs, in place of those that a user would write."""

from dataclasses import dataclass
from typing import Any, Literal

from bushel.core.machine import available_cores
from bushel.errors import PlanError

AUTO: Literal["auto"] = "auto"
# So many workers there are at first, if there are twice as many cores: the first batches of most
# pipelines come soon then, and whether more pay is measured.
_MOST_AT_FIRST = 4


@dataclass(frozen=True, slots=True)
class AutotuneParameter:
    """Stands for a number that is tuned while the pipeline runs, within these bounds.

    `"auto"` is the same without bounds of one's own: at least 1, and at most what the machine
    has.

    >>> import bushel
    >>> bushel.MultiprocessingOptions(num_workers=AutotuneParameter(least=2, most=8)).num_workers
    AutotuneParameter(least=2, most=8)
    """

    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        for name in ("least", "most"):
            value = getattr(self, name)
            if value is None and name == "most":
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"AutotuneParameter.{name} must be an integer, and is {value!r}.")
            if value < 1:
                raise PlanError(
                    f"AutotuneParameter.{name} must be at least 1, and is {value}: a number of 0 "
                    "leaves nothing to tune. Write 0 instead of the AutotuneParameter for none."
                )
        if self.most is not None and self.most < self.least:
            raise PlanError(
                f"AutotuneParameter(least={self.least}, most={self.most}) leaves no number: "
                "`most` must not be below `least`."
            )


def is_tuned(value: Any) -> bool:
    """Whether a number is to be found while the pipeline runs."""
    return value == AUTO or isinstance(value, AutotuneParameter)


def as_parameter(value: Any) -> AutotuneParameter | None:
    """The bounds within which a number is tuned; None for a number that the user set."""
    return AutotuneParameter() if value == AUTO else value if is_tuned(value) else None


@dataclass(frozen=True, slots=True)
class WorkerBounds:
    """How many workers there are at first, and between which numbers they may come to be."""

    first: int
    least: int
    most: int

    @property
    def is_tuned(self) -> bool:
        return self.least < self.most


def worker_bounds(num_workers: Any, cores: int | None = None) -> WorkerBounds:
    """The bounds of an option; a number that the user set is all three.

    >>> worker_bounds("auto", cores=16)
    WorkerBounds(first=4, least=1, most=16)
    >>> worker_bounds(3)
    WorkerBounds(first=3, least=3, most=3)
    """
    parameter = as_parameter(num_workers)
    if parameter is None:
        return WorkerBounds(num_workers, num_workers, num_workers)
    cores = available_cores() if cores is None else cores
    most = max(cores, parameter.least) if parameter.most is None else parameter.most
    first = min(most, max(parameter.least, min(_MOST_AT_FIRST, cores // 2)))
    return WorkerBounds(first, parameter.least, most)
