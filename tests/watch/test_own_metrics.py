"""Figures of a program's own iterators: its registry of Prometheus, and OpenTelemetry's SDK."""

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import bushel
from bushel import MapDataset, monitoring
from bushel.errors import PlanError
from bushel.watch.prometheus import METRICS


@pytest.fixture(autouse=True)
def no_iterator_of_others() -> None:
    """Has iterators collected that earlier tests have let go of."""
    gc.collect()


def bad(number: int) -> int:
    if number % 10 == 3:
        raise ValueError(number)
    return number


@pytest.fixture
def iterator() -> Iterator[Any]:
    dataset = MapDataset.range(40).map(bad).on_error("skip", budget=10).to_iter_dataset()
    with bushel.iterate(dataset) as made:
        assert len(list(made)) == 36
        yield made


Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def of_prometheus(registry: CollectorRegistry) -> Samples:
    """What a server tells, as the parser reads it."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


def of_opentelemetry(reader: InMemoryMetricReader) -> Samples:
    data = reader.get_metrics_data()
    return {
        (metric.name, frozenset(point.attributes.items())): point.value
        for of_resource in (data.resource_metrics if data is not None else ())
        for scope in of_resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def value(samples: Samples, name: str) -> float:
    found = [value for (metric, _), value in samples.items() if metric == name]
    assert len(found) == 1
    return found[0]


def test_a_registry_of_ones_own(iterator: Any) -> None:
    registry = CollectorRegistry()
    registry.register(bushel.prometheus_collector())
    samples = of_prometheus(registry)
    assert value(samples, "bushel_steps_total") == 36
    assert value(samples, "bushel_bad_records_total") == 4
    assert value(samples, "bushel_ready_blocks") == 0
    nodes = {dict(labels)["name"] for name, labels in samples if "node" in name}
    assert "map(bad)" in nodes
    names = {name for name, _ in samples}
    without_workers = {metric.name for metric in METRICS if "worker" not in metric.name}
    assert names >= without_workers
    assert all("pid" not in dict(labels) for _, labels in samples)
    iterator.close()
    assert all(not labels for _, labels in of_prometheus(registry))


def test_the_same_figures_for_opentelemetry(iterator: Any) -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader])
    try:
        bushel.opentelemetry_metrics(provider.get_meter("training"))
        samples = of_opentelemetry(reader)
    finally:
        provider.shutdown()
    assert value(samples, "bushel_steps") == 36
    assert value(samples, "bushel_bad_records") == 4
    registry = CollectorRegistry()
    registry.register(bushel.prometheus_collector())
    ages = "bushel_figures_age_seconds"
    told = {
        (name.removesuffix("_total"), labels): number
        for (name, labels), number in of_prometheus(registry).items()
        if labels and name != ages
    }
    assert {one: samples[one] for one in samples if one[0] != ages} == told


def test_without_a_meter_it_is_the_one_of_the_program(iterator: Any) -> None:
    bushel.opentelemetry_metrics()  # Without an SDK nobody collects, and nothing fails.


def test_figures_are_read_while_they_are_written() -> None:
    registry = CollectorRegistry()
    registry.register(bushel.prometheus_collector())
    over, seen = threading.Event(), []

    def scrape() -> None:
        while not over.is_set():
            samples = of_prometheus(registry)
            seen.extend(number for (name, _), number in samples.items() if "steps_total" in name)

    thread = threading.Thread(target=scrape)
    with bushel.iterate(MapDataset.range(64).repeat().batch(2)) as iterator:
        iterator._publish()
        thread.start()
        try:
            for _ in range(300):
                next(iterator)
                iterator._publish()
        finally:
            over.set()
            thread.join()
    assert seen == sorted(seen)
    assert seen


def test_a_forked_process_has_no_figures_of_its_parent(iterator: Any) -> None:
    child = os.fork()
    if not child:
        registry = CollectorRegistry()
        registry.register(bushel.prometheus_collector())
        os._exit(any(labels for _, labels in of_prometheus(registry)))
    assert os.waitpid(child, 0)[1] == 0


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.metrics", None)
    with pytest.raises(bushel.errors.PlanError, match=r"pip install bushel\[otel\]"):
        bushel.opentelemetry_metrics()


def test_metrics_of_the_program_are_handed_on_with_them() -> None:
    seen = monitoring.Counter(
        "/test/seen", monitoring.Metadata("What was seen."), fields=[("kind", str), ("by", str)]
    )
    seen.ClearAll()
    for _ in range(3):
        seen.Increment("cat", "me")
    seen.IncrementBy(4, "dog")  # A field that is left out is empty.
    seen.Increment("half of a pair \ud800")
    level = monitoring.Metric("/test/level", int)
    level.Set(7)
    level.Set(5)
    times = monitoring.EventMetric("/test/times", bucketer=monitoring.Bucketer.PowersOf(2.0))
    times.ClearAll()
    for value in (0.5, 3, 3, 1e30):
        times.Record(value)
    assert (seen.Get("cat", "me"), seen.Get("dog"), level.Get()) == (3, 4, 5)
    assert times.Get().count == 4
    registry = CollectorRegistry()
    registry.register(bushel.prometheus_collector())  # type: ignore[arg-type]
    told = of_prometheus(registry)
    assert told["test_seen_total", frozenset({("kind", "cat"), ("by", "me")})] == 3
    assert told["test_seen_total", frozenset({("kind", "dog"), ("by", "")})] == 4
    assert told["test_level", frozenset()] == 5
    assert told["test_times_bucket", frozenset({("le", "1.0")})] == 1
    assert told["test_times_bucket", frozenset({("le", "4.0")})] == 3
    assert told["test_times_bucket", frozenset({("le", "+Inf")})] == 4
    assert told["test_times_count", frozenset()] == 4


def test_a_metric_that_is_made_again_goes_on_counting() -> None:
    first = monitoring.Counter("/test/again")
    first.ClearAll()
    first.Increment()
    monitoring.Counter("/test/again").Increment()
    assert first.Get() == 2
    with pytest.raises(PlanError, match="is a Counter already, and cannot be a Metric"):
        monitoring.Metric("/test/again")
    with pytest.raises(PlanError, match="cannot fall by 1: use a `Metric`"):
        first.IncrementBy(-1)
    for name in ("", "///", 3):
        with pytest.raises(PlanError, match="a name with letters"):
            monitoring.Counter(name)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="above 1"):
        monitoring.Bucketer.PowersOf(1.0)


def test_names_that_are_taken_are_told_once() -> None:
    monitoring.Counter("/test/same name").Increment()
    monitoring.Counter("/test/same/name").Increment()
    monitoring.Counter("bushel_steps_total").Increment()
    registry = CollectorRegistry()
    registry.register(bushel.prometheus_collector())  # type: ignore[arg-type]
    text = generate_latest(registry).decode()
    assert text.count("# TYPE test_same_name_total") == 1
    assert text.count("# TYPE bushel_steps_total") == 1


def test_counts_of_many_threads_are_exact() -> None:
    counter = monitoring.Counter("/test/threads")
    counter.ClearAll()
    threads = [
        threading.Thread(target=lambda: [counter.Increment() for _ in range(2000)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.Get() == 8000


def test_sources_tell_what_they_read() -> None:
    for _ in range(2):
        monitoring.record_bytes_read_and_latency(
            "my source", num_bytes=100, latency_ns=5000, num_reads=5
        )
    registry = CollectorRegistry()
    registry.register(bushel.prometheus_collector())  # type: ignore[arg-type]
    told = of_prometheus(registry)
    mine = frozenset({("source", "my source")})
    assert told["bushel_sources_bytes_read_total", mine] >= 200
    assert told["bushel_sources_read_time_ns_sum", mine] >= 2000


def test_what_grain_has_is_here() -> None:
    import grain

    ours = set(monitoring.__all__)
    theirs = {name for name in dir(grain.monitoring) if name[0].isupper()}
    assert theirs <= ours
    for name in theirs - {"Units", "Metadata", "Bucketer"}:
        methods = {one for one in dir(getattr(grain.monitoring, name)) if one[0].isupper()}
        assert methods <= set(dir(getattr(monitoring, name))), name
    assert [unit.name for unit in grain.monitoring.Units] == [one.name for one in monitoring.Units]
    assert monitoring.get_monitoring_root() is grain.monitoring.get_monitoring_root()


def test_telemetry_is_set_up_once() -> None:
    code = """
import prometheus_client, bushel
bushel.monitoring.setup_telemetry()
bushel.monitoring.setup_telemetry()
bushel.monitoring.Counter("/my/own").Increment()
assert b"my_own_total 1.0" in prometheus_client.generate_latest()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
