"""`ReadOptions`, `MultiprocessingOptions`, `DatasetOptions`, `OnError`: fields, bounds, checks."""

import enum
import os
import warnings
from dataclasses import dataclass, field
from typing import Any, Literal

from bushel.core.arguments import explains, whole
from bushel.core.tuned_options import AutotuneParameter, as_parameter, is_tuned
from bushel.errors import PlanError

_MOST_THREADS, _MOST_BUFFERED = 16, 500
# The most elements that threads can make use of; their memory is limited elsewhere.
_MOST_BUFFERED_TUNED = 1 << 16


@dataclass(slots=True, init=False)
class ReadOptions:
    """How many threads may prefetch, and how far.

    bushel starts without threads, measures, and moves to threads when the stream is
    faster that way: `num_threads` is the most it may use. With 0, everything runs in the
    calling thread. Order, values and states do not depend on it.

    >>> ReadOptions(num_threads="auto", prefetch_buffer_size=AutotuneParameter(most=100))
    ReadOptions(num_threads=16, prefetch_buffer_size=100)

    Args:
      num_threads: the most threads. "auto" is the default number, of which only as many are
        used as make the stream faster; `AutotuneParameter(most=8)` is 8.
      prefetch_buffer_size: the most prefetched elements; in a batched stream, in addition to
        the elements of two batches. "auto" is as many as keep the threads busy, within 64 MB.
    """

    num_threads: int
    prefetch_buffer_size: int

    def __init__(
        self,
        num_threads: int | Literal["auto"] | AutotuneParameter = _MOST_THREADS,
        prefetch_buffer_size: int | Literal["auto"] | AutotuneParameter = _MOST_BUFFERED,
    ) -> None:
        self.num_threads = _most_of("num_threads", num_threads, _MOST_THREADS)
        self.prefetch_buffer_size = _most_of(
            "prefetch_buffer_size", prefetch_buffer_size, _MOST_BUFFERED_TUNED
        )
        # The default buffer suits any reasonable number of threads.
        if 0 < self.prefetch_buffer_size < self.num_threads:
            warnings.warn(
                f"ReadOptions: a prefetch_buffer_size of {self.prefetch_buffer_size} cannot keep "
                f"{self.num_threads} threads busy; make it at least as large.",
                stacklevel=2,
            )


def _most_of(name: str, value: Any, usual: int) -> int:
    """The maximum that an option allows; less may be used."""
    parameter = as_parameter(value)
    if parameter is not None:
        if parameter.least > 1:
            raise PlanError(
                f"ReadOptions.{name} cannot be {parameter}: bushel uses only as many threads as "
                "are faster, perhaps none, so there is no least number of threads or of "
                f"prefetched elements. Write AutotuneParameter(most={parameter.most})."
            )
        return usual if parameter.most is None else parameter.most
    if not isinstance(value, int):
        raise TypeError(
            f"ReadOptions.{name} must be an integer, and is {value!r}. (Or write "
            '"auto": it is found out while the pipeline runs.)'
        )
    if value < 0:
        raise PlanError(f"ReadOptions.{name} must not be negative, and is {value}.")
    return value


class SharedReadOptions(ReadOptions):
    """The options of streams that are read side by side and share their threads.

    So many `streams` have the very same object. Of each, `rows` elements are needed at a time.
    """

    __slots__ = ("rows", "streams")

    def __init__(self, options: ReadOptions, streams: int, rows: int) -> None:
        self.num_threads = options.num_threads
        self.prefetch_buffer_size = options.prefetch_buffer_size
        self.streams, self.rows = streams, rows


_ON_HANG = ("wait", "replace", "raise")


class WorkersKey:
    """Stands for the workers of one dataset or loader, which stay from one pass to the next.

    The processes themselves are in `workers/home.py`. A copy has workers of its own.
    """

    __slots__ = ("__weakref__",)

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkersKey, ()


@dataclass(slots=True)
class MultiprocessingOptions:
    """How many worker processes, and how much each prefetches.

    Args:
      num_workers: number of worker processes; 0 evaluates in the calling process. "auto" begins
        with a few and changes their number while it runs, by how long the loop waits, within the
        cores and `ram_budget_mb`; `AutotuneParameter(least, most)` does so between two numbers.
        The stream is the same.
      per_worker_buffer_size: finished blocks that each worker may have waiting, in addition to
        the block that it computes; "auto" tunes the number, within `ram_budget_mb`.
      enable_profiling: accepted for programs written for Grain, without effect.
      hang_timeout: seconds without progress after which a worker counts as hung (longer than
        a batch takes); None means no timeout.
      on_hang: what happens then, in addition to a report of where it hangs: "wait" for it,
        "replace" it by another worker that does its tasks again, or "raise".
      ram_budget_mb: memory for all workers and their finished blocks, if something is "auto",
        in megabytes of 2^20 bytes; None is a quarter of the free memory.
    """

    num_workers: int | Literal["auto"] | AutotuneParameter = 0
    per_worker_buffer_size: int | Literal["auto"] | AutotuneParameter = 1
    enable_profiling: bool = False
    # Not shown: the text of options is as Grain's.
    hang_timeout: float | None = field(default=None, repr=False)
    on_hang: str = field(default="wait", repr=False)
    ram_budget_mb: float | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.on_hang not in _ON_HANG:
            raise PlanError(f"on_hang must be one of {list(_ON_HANG)}, and is {self.on_hang!r}.")
        if self.hang_timeout is not None and not self.hang_timeout > 0:
            raise PlanError(f"hang_timeout must be positive, and is {self.hang_timeout!r}.")
        for name in ("num_workers", "per_worker_buffer_size"):
            value = getattr(self, name)
            if is_tuned(value):
                continue
            if not isinstance(value, int):
                raise TypeError(
                    f"MultiprocessingOptions.{name} must be an integer: {value!r}. (Or write "
                    '"auto": it is found out while the pipeline runs.)'
                )
            if value < 0:
                raise PlanError(
                    f"MultiprocessingOptions.{name} must not be negative, and is {value}."
                )
        budget = self.ram_budget_mb
        if budget is not None and not (isinstance(budget, (int, float)) and budget > 0):
            raise PlanError(
                f"MultiprocessingOptions.ram_budget_mb is a number of megabytes above 0, or None "
                f"for a quarter of the memory that is free, and not {budget!r}."
            )


_explain = explains(instead=dict.fromkeys(("workers", "worker_count"), "num_workers"))
MultiprocessingOptions.__init__ = _explain(MultiprocessingOptions.__init__)  # type: ignore[method-assign]


class ExecutionTrackingMode(enum.Enum):
    """Whether the steps of a pipeline are counted and timed, for `iterator.stats()`."""

    DISABLED = enum.auto()
    STAGE_TIMING = enum.auto()


class _Default:
    """Marks an option that the user did not set."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return repr(self.value)


@dataclass(kw_only=True)
class DatasetOptions:
    """Options for a whole pipeline.

    Args:
      filter_warn_threshold_ratio: warn when a filter drops at least this share of 1,000
        elements in a row; None never warns.
      filter_raise_threshold_ratio: raise in that case; None never raises.
      execution_tracking_mode: with `STAGE_TIMING` steps are counted and timed, and
        `iterator.stats()` tells of each, as with `bushel.iterate`.
      min_shm_size: accepted for programs written for Grain; bushel decides by itself what
        travels by shared memory.
    """

    filter_warn_threshold_ratio: Any = _Default(0.9)  # noqa: RUF009
    filter_raise_threshold_ratio: Any = _Default(None)  # noqa: RUF009
    execution_tracking_mode: Any = _Default(ExecutionTrackingMode.DISABLED)  # noqa: RUF009
    min_shm_size: Any = _Default(0)  # noqa: RUF009
    _user_set_fields: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        for name in _OPTION_NAMES:
            value = getattr(self, name)
            if isinstance(value, _Default):
                setattr(self, name, value.value)
            else:
                self._user_set_fields.add(name)

    def merge(self, other: "DatasetOptions | None") -> "DatasetOptions":
        """Combines two; what was set on this one wins.

        >>> mine = DatasetOptions(filter_warn_threshold_ratio=0.5)
        >>> mine.merge(DatasetOptions(min_shm_size=10)).min_shm_size
        10
        """
        if other is None:
            return self
        chosen = {name: getattr(other, name) for name in other._user_set_fields}
        chosen.update({name: getattr(self, name) for name in self._user_set_fields})
        return DatasetOptions(**chosen)


_OPTION_NAMES = (
    "filter_warn_threshold_ratio",
    "filter_raise_threshold_ratio",
    "execution_tracking_mode",
    "min_shm_size",
)


class OnError:
    """What becomes of records that cannot be read, or for which a function fails.

    For `DataLoader(on_error=...)`; datasets have the method `on_error`, which explains it.

    >>> OnError("skip", budget=10)
    OnError('skip', budget=10)
    """

    __slots__ = ("budget", "errors", "policy", "quarantine", "replacement")

    def __init__(
        self,
        policy: str,
        replacement: Any = None,
        errors: type[Exception] | tuple[type[Exception], ...] = Exception,
        budget: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
    ) -> None:
        if policy not in ("raise", "skip", "replace"):
            raise PlanError(f"on_error is 'raise', 'skip' or 'replace', and not {policy!r}.")
        if policy == "replace" and replacement is None:
            raise PlanError(
                "on_error('replace') needs a replacement: the element to put in the place of a "
                "bad one, or a function that makes it of the exception. (None would mean that "
                "it is left out; write on_error('skip') for that.)"
            )
        if policy != "replace" and replacement is not None:
            raise PlanError(f"a replacement is only for on_error('replace'), not for {policy!r}.")
        kinds = errors if isinstance(errors, tuple) else (errors,)
        for kind in kinds:
            if not (isinstance(kind, type) and issubclass(kind, Exception)):
                raise TypeError(f"`errors` are classes of exceptions, and {kind!r} is none.")
        if budget is not None and whole(budget, "budget") < 0:
            raise PlanError(f"a budget is a number of records from 0 on, and not {budget}.")
        self.policy = policy
        self.replacement = replacement
        self.errors = kinds
        self.budget = None if budget is None else whole(budget, "budget")
        self.quarantine = None if quarantine is None else os.path.abspath(os.fspath(quarantine))

    def __repr__(self) -> str:
        budget = "" if self.budget is None else f", budget={self.budget}"
        return f"OnError({self.policy!r}{budget})"


def check_read_options(read_options: ReadOptions | None) -> ReadOptions:
    """Returns the options, or the default ones."""
    if read_options is None:
        return ReadOptions()
    if not isinstance(read_options, ReadOptions):
        raise TypeError(
            f"read_options must be `ReadOptions`, and is a {type(read_options).__name__}."
        )
    return read_options
