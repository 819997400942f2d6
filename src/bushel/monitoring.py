"""Metrics of a user's program and of bushel: `grain.monitoring`, with values that can be read.

`Counter`, `Metric` and `EventMetric` count in the process that they are in. What they have counted,
`Get` tells, and `bushel.prometheus_collector()` hands on with the figures of the iterators.
"""

from bushel.watch.own_metrics import setup_telemetry
from bushel.watch.user_metrics import (
    Bucketer,
    Counter,
    EventMetric,
    Metadata,
    Metric,
    Units,
    get_monitoring_root,
    record_bytes_read_and_latency,
)

__all__ = [
    "Bucketer",
    "Counter",
    "EventMetric",
    "Metadata",
    "Metric",
    "Units",
    "get_monitoring_root",
    "record_bytes_read_and_latency",
    "setup_telemetry",
]
