"""`RayOptions`: the options of workers on a Ray cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from bushel.core.arguments import explains
from bushel.core.tuned_options import AutotuneParameter, WorkerBounds, as_parameter, is_tuned
from bushel.errors import PlanError

# The initial number of workers of a cluster, if it is tuned, and the maximum.
_FIRST_WORKERS, _MOST_WORKERS = 2, 1 << 16
_ON_HANG = ("wait", "replace", "raise")


@dataclass(slots=True)
class RayOptions:
    """How many workers on a Ray cluster, where they may run, and how much each keeps ready.

    Args:
      num_workers: workers, each an actor with a process of its own. "auto" begins with a few and
        has more or fewer while it runs, by what the loop waits, as far as the cluster has room;
        `AutotuneParameter(least, most)` does so between two numbers, and also asks for room that
        is not there yet, which a cluster that grows by itself then adds. The stream is the same.
      num_local_workers: processes of this machine beside them, which are given tasks first.
      per_worker_buffer_size: blocks that each worker may have waiting beside the one it is at.
      address: the cluster; by default the one that this program is connected to, else that of
        `RAY_ADDRESS` or of this machine. "local" starts one on this machine, to try things.
      num_cpus: CPUs that each worker takes of its node.
      memory: bytes of a node's memory that each worker takes; None takes no account of it.
      resources: further resources of Ray's that each worker takes, by name.
      label_selector: labels that a worker's node must have: `{"pool": "cpu"}`.
      runtime_env: packages, files and variables for workers, in Ray's own form.
      writable: whether arrays may be written to, as those of local workers. False gives views of
        Ray's object store and saves a copy, for whoever hands them to a device at once.
      hang_timeout: seconds that a task may take before its worker is said to hang; None never.
      on_hang: what happens then: "wait" for it, "replace" it by another worker, or "raise".
      start_timeout: seconds after which it is an error that no worker at all has found a place.
    """

    num_workers: int | Literal["auto"] | AutotuneParameter = 2
    per_worker_buffer_size: int = 1
    address: str | None = None
    num_cpus: float = 1.0
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    label_selector: Mapping[str, str] = field(default_factory=dict)
    runtime_env: Mapping[str, Any] | None = None
    writable: bool = True
    hang_timeout: float | None = None
    on_hang: str = "wait"
    start_timeout: float = 60.0
    num_local_workers: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("num_workers", 1),
            ("per_worker_buffer_size", 0),
            ("num_local_workers", 0),
        ):
            value = getattr(self, name)
            if name == "num_workers" and is_tuned(value):
                continue
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(
                    f"RayOptions.{name} must be an integer, and is {value!r}."
                    + (' (Or write "auto".)' if name == "num_workers" else "")
                )
            if value < least:
                raise PlanError(f"RayOptions.{name} must be at least {least}, and is {value}.")
        if self.on_hang not in _ON_HANG:
            raise PlanError(f"on_hang must be one of {list(_ON_HANG)}, and is {self.on_hang!r}.")
        for name in ("hang_timeout", "start_timeout"):
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise PlanError(f"RayOptions.{name} must be positive, and is {seconds!r}.")
        if self.num_local_workers and not self.writable:
            raise PlanError(
                "RayOptions(writable=False) gives views of Ray's object store, and what "
                f"num_local_workers={self.num_local_workers} make is not there. Leave out one of "
                "the two."
            )
        if self.num_cpus < 0:
            raise PlanError(f"RayOptions.num_cpus must not be negative, and is {self.num_cpus!r}.")
        if self.address is not None and self.address.startswith("ray://"):
            raise PlanError(
                f"a client of Ray ({self.address}) would send every batch through a proxy. Run the "
                "program on a node of the cluster, with its address as `ray start` tells it."
            )


def cluster_bounds(num_workers: Any) -> WorkerBounds:
    """The bounds of the number of workers, which does not depend on the cores of this machine.

    >>> cluster_bounds("auto")
    WorkerBounds(first=2, least=1, most=65536)
    """
    parameter = as_parameter(num_workers)
    if parameter is None:
        return WorkerBounds(num_workers, num_workers, num_workers)
    most = _MOST_WORKERS if parameter.most is None else parameter.most
    return WorkerBounds(min(most, max(parameter.least, _FIRST_WORKERS)), parameter.least, most)


def bounds_of(options: RayOptions) -> WorkerBounds:
    """The bounds of the number of workers, including those of this machine.

    >>> bounds_of(RayOptions(num_workers=4, num_local_workers=2))
    WorkerBounds(first=6, least=6, most=6)
    """
    bounds, here = cluster_bounds(options.num_workers), options.num_local_workers
    return WorkerBounds(here + bounds.first, here + bounds.least, here + bounds.most)


def is_open(num_workers: Any) -> bool:
    """Whether a number is tuned without an upper bound of the user's."""
    parameter = as_parameter(num_workers)
    return parameter is not None and parameter.most is None


_explain = explains(instead=dict.fromkeys(("workers", "worker_count"), "num_workers"))
RayOptions.__init__ = _explain(RayOptions.__init__)  # type: ignore[method-assign]
