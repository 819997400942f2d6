"""Figures of a program's own iterators: its registry of Prometheus, and OpenTelemetry's SDK."""

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import bushel
from bushel import MapDataset
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
