"""`AutotuneParameter` and `"auto"`: the bounds of workers and buffers that are tuned."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from bushel.core.arguments import whole
from bushel.core.machine import available_cores
from bushel.errors import PlanError

AUTO: Literal["auto"] = "auto"
# The most workers at first (with twice as many cores): the first batches of most pipelines come
# soon with them, and whether more pay is measured.
_MOST_AT_FIRST = 4
# The most workers per core, if the user sets no bound: workers that wait for a disk or an answer
# leave their core to others. And the most in all.
_MOST_A_CORE, _MOST_IN_ALL = 8, 128
# The most elements that a thread keeps ready, if that is tuned; fewer if they are large.
MOST_BUFFERED = 1 << 12


@dataclass(frozen=True, slots=True)
class AutotuneParameter:
    """Stands for a number that is tuned while the pipeline runs, within these bounds.

    `"auto"` is the same without bounds: at least 1, and at most what the machine has. (For workers,
    that is one for each core, or more if they wait for disks or answers.)

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
    return isinstance(value, AutotuneParameter) or (isinstance(value, str) and value == AUTO)


def as_parameter(value: Any) -> AutotuneParameter | None:
    """The bounds within which a number is tuned; None for a number that the user set."""
    if isinstance(value, AutotuneParameter):
        return value
    return AutotuneParameter() if is_tuned(value) else None


# (A named tuple is made in a tenth of the time of a dataclass, and workers wait for that.)
class BufferBounds(NamedTuple):
    """The number of elements that a thread keeps ready: at first, and at most."""

    least: int
    most: int
    is_tuned: bool = False

    def __str__(self) -> str:
        return AUTO if self.is_tuned else str(self.most)


def buffer_bounds(value: Any, name: str, most: int) -> BufferBounds:
    """The bounds of an option; without an upper bound of the user's, up to `most`.

    >>> buffer_bounds("auto", "buffer_size", 8), buffer_bounds(4, "buffer_size", 8)
    (BufferBounds(least=1, most=8, is_tuned=True), BufferBounds(least=1, most=4, is_tuned=False))
    """
    parameter = as_parameter(value)
    if parameter is not None:
        bound = max(most, parameter.least) if parameter.most is None else parameter.most
        return BufferBounds(parameter.least, bound, is_tuned=True)
    size = whole(value, name)
    if size < 0:
        raise PlanError(f"`{name}` must not be negative, and is {size}.")
    return BufferBounds(min(1, size), size)


class WorkerBounds(NamedTuple):
    """The number of workers at first, and its bounds."""

    first: int
    least: int
    most: int

    @property
    def is_tuned(self) -> bool:
        return self.least < self.most


def worker_bounds(num_workers: Any, cores: int | None = None) -> WorkerBounds:
    """The bounds of an option; a number that the user set is all three.

    >>> worker_bounds("auto", cores=16)
    WorkerBounds(first=4, least=1, most=128)
    >>> worker_bounds(3)
    WorkerBounds(first=3, least=3, most=3)
    """
    parameter = as_parameter(num_workers)
    if parameter is None:
        return WorkerBounds(num_workers, num_workers, num_workers)
    cores = available_cores() if cores is None else cores
    most = max(cores, parameter.least, min(_MOST_A_CORE * cores, _MOST_IN_ALL))
    if parameter.most is not None:
        most = parameter.most
    first = min(most, max(parameter.least, min(_MOST_AT_FIRST, cores // 2)))
    return WorkerBounds(first, parameter.least, most)
