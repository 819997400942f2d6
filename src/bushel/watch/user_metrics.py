"""The metrics of `bushel.monitoring`: counters, values and distributions, as in Grain.

They count in their own process. `bushel.prometheus_collector()` includes them.
"""

import enum
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from bushel.errors import PlanError

# Upper bounds of the buckets of a distribution: powers of four, unless a metric sets others.
_USUAL_BASE, _MOST_PARTS = 4.0, 32


class Units(enum.Enum):
    """The unit of a number."""

    SECONDS = 1
    MILLISECONDS = 2
    MICROSECONDS = 3
    NANOSECONDS = 4
    BITS = 5
    BYTES = 6


class Metadata:
    """What a metric measures, in words, and its unit."""

    def __init__(self, description: str = "", units: Units | None = None, **others: Any) -> None:
        self.description, self.units = description, units


@dataclass(frozen=True, slots=True)
class Bucketer:
    """The division of a distribution into buckets."""

    base: float = _USUAL_BASE

    @staticmethod
    def PowersOf(base: float) -> "Bucketer":
        """Buckets that end at powers of a number."""
        if not base > 1:
            raise PlanError(f"`PowersOf` takes a number above 1, and got {base!r}.")
        return Bucketer(float(base))

    def ends(self) -> list[float]:
        """The upper bounds; the last bucket has none."""
        return [self.base**power for power in range(_MOST_PARTS)]


@dataclass(frozen=True, slots=True)
class Distribution:
    """Recorded numbers: their count, their sum, and the count in each bucket."""

    count: int
    sum: float
    # The count up to each bound, as `(bound, count)`.
    parts: tuple[tuple[float, int], ...]


class UserSeries(NamedTuple):
    """The value of one metric for one combination of its fields."""

    fields: tuple[str, ...]
    value: "float | Distribution"


# All metrics of this process by name: one that is made again continues.
_known: "dict[str, UserMetric]" = {}
_lock = threading.Lock()


class UserMetric:
    """A metric of the program's own; `fields` are the names and types that distinguish its series.

    Any thread may use it.
    """

    kind = "gauge"

    def __new__(cls, name: str, *args: Any, **kwargs: Any) -> "UserMetric":
        if not isinstance(name, str) or not re.search(r"[A-Za-z0-9]", name):
            raise PlanError(f"a metric has a name with letters in it, and not {name!r}.")
        with _lock:
            found = _known.get(name)
            if found is None:
                found = _known[name] = super().__new__(cls)
                found._values = {}
                found._lock = threading.Lock()
        if not isinstance(found, cls):
            raise PlanError(
                f"the metric {name!r} is a {type(found).__name__} already, and cannot be a "
                f"{cls.__name__}."
            )
        return found

    _values: dict[tuple[str, ...], Any]
    _lock: threading.Lock

    def _describe(self, name: str, metadata: Any, fields: Any) -> None:
        self.name = name
        self.metadata = metadata if metadata is not None else Metadata()
        self.fields = tuple(
            field if isinstance(field, str) else str(field[0]) for field in fields or ()
        )

    def _of(self, fields: Sequence[Any]) -> tuple[str, ...]:
        """The fields of a series: a value for each name."""
        given = zip_longest(self.fields, map(_text, fields[: len(self.fields)]), fillvalue="")
        return tuple(value for _, value in given)

    def ClearAll(self) -> None:
        """Resets the metric."""
        with self._lock:
            self._values.clear()

    def series(self) -> list[UserSeries]:
        """The values so far."""
        with self._lock:
            return [UserSeries(fields, self._told(value)) for fields, value in self._values.items()]

    def _told(self, value: Any) -> "float | Distribution":
        return float(value)


def _text(value: Any) -> str:
    """A text that any server can send: half of a surrogate pair would make it fail."""
    return str(value).encode(errors="backslashreplace").decode()


class Counter(UserMetric):
    """Counts.

    >>> seen = Counter("/my/program/seen", Metadata("What was seen."), fields=[("kind", str)])
    >>> seen.Increment("cat")
    >>> seen.IncrementBy(2, "cat")
    >>> seen.Get("cat"), seen.Get("dog")
    (3.0, 0.0)
    """

    kind = "counter"

    def __init__(
        self, name: str, metadata: Any = None, root: Any = None, fields: Any = (), **others: Any
    ) -> None:
        self._describe(name, metadata, fields)

    def Increment(self, *fields: Any) -> None:
        """Adds one."""
        self.IncrementBy(1, *fields)

    def IncrementBy(self, value: float, *fields: Any) -> None:
        """Adds a number."""
        if value < 0:
            raise PlanError(f"the counter {self.name!r} cannot fall by {-value}: use a `Metric`.")
        key = self._of(fields)
        with self._lock:
            self._values[key] = self._values.get(key, 0) + value

    def Get(self, *fields: Any) -> float:
        """The count so far."""
        return float(self._values.get(self._of(fields), 0))


class Metric(UserMetric):
    """A number that may have any value at the next look."""

    def __init__(
        self,
        name: str,
        value_type: type = float,
        metadata: Any = None,
        root: Any = None,
        fields: Any = (),
        **others: Any,
    ) -> None:
        self._describe(name, metadata, fields)

    def Set(self, value: float, *fields: Any) -> None:
        """Sets the number."""
        number = float(value)
        with self._lock:
            self._values[self._of(fields)] = number

    def Get(self, *fields: Any) -> float:
        """The number that was set last; 0 before."""
        return float(self._values.get(self._of(fields), 0))


class EventMetric(UserMetric):
    """Numbers that are recorded one by one, and reported as a distribution.

    >>> sizes = EventMetric("/my/program/sizes", bucketer=Bucketer.PowersOf(10.0))
    >>> for size in (3, 20, 70):
    ...     sizes.Record(size)
    >>> told = sizes.Get()
    >>> told.count, told.sum, told.parts[:4]
    (3, 93.0, ((1.0, 0), (10.0, 1), (100.0, 3), (1000.0, 3)))
    """

    kind = "histogram"

    def __init__(
        self,
        name: str,
        metadata: Any = None,
        root: Any = None,
        fields: Any = (),
        bucketer: Bucketer | None = None,
        **others: Any,
    ) -> None:
        self._describe(name, metadata, fields)
        self._ends = (bucketer or Bucketer()).ends()

    def Record(self, value: float, *fields: Any) -> None:
        """Records a number."""
        number = float(value)
        key, part = self._of(fields), bisect_left(self._ends, number)
        with self._lock:
            if key not in self._values:
                self._values[key] = [0.0, [0] * (len(self._ends) + 1)]
            kept = self._values[key]
            kept[0] += number
            kept[1][part] += 1

    def Get(self, *fields: Any) -> Distribution:
        """The distribution so far."""
        with self._lock:
            return self._told(self._values.get(self._of(fields), [0.0, [0]]))

    def _told(self, value: Any) -> Distribution:
        total, counts = value
        return Distribution(sum(counts), total, tuple(_summed(self._ends, counts)))


def _summed(ends: Sequence[float], counts: Sequence[int]) -> Iterator[tuple[float, int]]:
    upto = 0
    for end, count in zip_longest(ends, counts[: len(ends)], fillvalue=0):
        upto += int(count)
        yield float(end), upto


def all_user_metrics() -> list[UserMetric]:
    """The metrics that this program has made."""
    with _lock:
        return list(_known.values())


def public_name(name: str) -> str:
    """The name in Prometheus.

    >>> public_name("/my/program/seen")
    'my_program_seen'
    """
    made = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    return f"_{made}" if made[:1].isdigit() else made


def get_monitoring_root() -> None:
    """None: metrics have no parent."""


_BYTES, _TIME = "/bushel/sources/bytes_read", "/bushel/sources/read_time_ns"


def record_bytes_read_and_latency(
    source: str, *, num_bytes: int, latency_ns: int, num_reads: int
) -> None:
    """Reports what a user's own source has read, and how long that took."""
    metadata = Metadata("Bytes that sources of the program's own have read.", Units.BYTES)
    Counter(_BYTES, metadata, fields=[("source", str)]).IncrementBy(num_bytes, source)
    if num_reads > 0:
        metadata = Metadata("How long a read of theirs took.", Units.NANOSECONDS)
        times = EventMetric(_TIME, metadata, fields=[("source", str)])
        times.Record(latency_ns / num_reads, source)
