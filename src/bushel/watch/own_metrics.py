"""`prometheus_collector`, `opentelemetry_metrics`: metrics for a server of the program itself.

The metrics server calls them on its own thread, and they read what the iterators have published: no
training waits for it.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any

from bushel.errors import PlanError
from bushel.watch.live_processes import own_iterators
from bushel.watch.prometheus import METRICS, Exposition, Families, own_label
from bushel.watch.user_metrics import Distribution, all_user_metrics, public_name

# OpenTelemetry asks for one metric after the other: figures of this age serve all of them.
_SAME_SECONDS = 0.2


class _Own:
    """Reads the figures of this process, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._exposition = Exposition()
        self._read: tuple[float, Families] = -1.0, []

    def families(self, seconds: float = 0.0) -> Families:
        """The metrics; those of the last call if they are recent enough."""
        with self._lock:
            read_at, families = self._read
            if read_at < 0 or monotonic() - read_at >= seconds:
                iterators = ((own_label(one), one) for one in own_iterators())
                families = self._exposition.families(iterators)
                self._read = monotonic(), families
            return families


class Collector:
    """A collector for a registry of `prometheus_client`."""

    def __init__(self) -> None:
        self._own = _Own()

    def describe(self) -> Iterable[Any]:
        """Nothing, so that registering it collects nothing."""
        return ()

    def collect(self) -> Iterator[Any]:
        """The metrics of the iterators that this process has now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        for metric, values in self._own.families():
            names = [name for name, _ in values[0][0]] if values else []
            family = kinds[metric.kind](metric.name, metric.help, labels=names)
            for labels, value in values:
                family.add_metric([text for _, text in labels], value)
            yield family
        yield from _of_the_program()


def _of_the_program() -> Iterator[Any]:
    """The program's own metrics, of `bushel.monitoring`."""
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    kinds = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
    told: set[str] = set()
    for metric in all_user_metrics():
        name, fields = public_name(metric.name), list(map(public_name, metric.fields))
        if name in told or name.startswith(_OURS):
            continue  # Two names may be the same for Prometheus, which does not allow duplicates.
        told.add(name)
        make = kinds.get(metric.kind, HistogramMetricFamily)
        family = make(name, metric.metadata.description or metric.name, labels=fields)
        for series in metric.series():
            if isinstance(series.value, Distribution):
                parts = [(repr(end), count) for end, count in series.value.parts]
                whole = (*parts, ("+Inf", series.value.count))
                family.add_metric(list(series.fields), whole, series.value.sum)
            else:
                family.add_metric(list(series.fields), series.value)
        yield family


# Names of the metrics of iterators.
_OURS = tuple(metric.name.removesuffix("_total") for metric in METRICS)
_set_up = threading.Lock()
_registered: list[Collector] = []


def setup_telemetry() -> None:
    """Adds the collector to the registry that `prometheus_client` has for the program, once.

    Starts no server: `prometheus_client.start_http_server(9431)` does.
    """
    try:
        from prometheus_client.core import REGISTRY
    except ImportError as error:
        raise PlanError(
            "`setup_telemetry` needs the package prometheus_client: pip install bushel[metrics]."
        ) from error
    with _set_up:
        if not _registered:
            _registered.append(Collector())
            REGISTRY.register(_registered[0])


def prometheus_collector() -> Collector:
    """Makes a collector of the figures of this program's iterators, for its own Prometheus server.

    `prometheus_client.REGISTRY.register(bushel.prometheus_collector())` is all that it takes; what
    `bushel.iterate` makes is then among what the program serves. The metrics are those of `bushel
    serve`, without the label `pid`.
    """
    return Collector()


def opentelemetry_metrics(meter: Any = None) -> None:
    """Has the figures of this program's iterators observed by OpenTelemetry.

    Once a program. They are observed when a reader of the SDK collects; without an SDK, nothing
    is. Names and attributes are those of `bushel serve`, without `_total` and the label `pid`.

    Args:
        meter: to whom the metrics belong; `opentelemetry.metrics.get_meter("bushel")` if None.
    """
    try:
        from opentelemetry.metrics import Observation, get_meter
    except ImportError as error:
        raise PlanError(
            "`opentelemetry_metrics` needs the package opentelemetry-api: pip install bushel[otel]."
        ) from error
    to = get_meter("bushel") if meter is None else meter
    own = _Own()

    def observe(number: int, _: object) -> Iterable[Any]:
        values = own.families(_SAME_SECONDS)[number][1]
        return [Observation(value, dict(labels)) for labels, value in values]

    for number, metric in enumerate(METRICS):
        make: dict[str, Callable[..., Any]] = {
            "counter": to.create_observable_counter,
            "gauge": to.create_observable_gauge,
        }
        name = metric.name.removesuffix("_total")
        unit = next((unit for unit in ("s", "By") if name.endswith(_UNITS[unit])), "1")
        make[metric.kind](name, [partial(observe, number)], unit=unit, description=metric.help)


_UNITS = {"s": "_seconds", "By": "_bytes"}
