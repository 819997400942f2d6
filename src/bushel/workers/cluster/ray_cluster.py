"""The only file that imports Ray."""

import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from bushel.core.ray_options import RayOptions, cluster_bounds, is_open
from bushel.errors import MissingPackageError, PlanError, WorkerError
from bushel.workers.cluster.actor import ClusterWorker, Packed, packed_value, size_of, unpacked
from bushel.workers.cluster.cluster import (
    MEMORY,
    NODE,
    NOTHING_NOTED,
    PROCESS,
    UNREACHABLE,
    Noted,
    ResultLost,
    TaskFault,
    WorkerGone,
    WorkerGreeting,
)
from bushel.workers.cluster.pages import read_page
from bushel.workers.cluster.warm import WarmMemory
from bushel.workers.fragment import Outcome, TaskMessage
from bushel.workers.payload import Luggage

_log = logging.getLogger("bushel")

# The most seconds for a node to read the note of a worker that has ended.
_NOTES_SECONDS = 10.0
# Smaller arrays are copied together with their pickle anyway.
_SMALL = 1 << 12
_MOST_SECONDS_BETWEEN_LOOKS = 5.0
# Workers without resource requirements fit anywhere; no more than this number at a time.
_MOST_AT_ONCE = 64


def ray_package() -> Any:
    """Imports Ray."""
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise MissingPackageError(f"workers on a cluster need Ray: {error}", "ray") from error
    return ray


def connect(options: RayOptions) -> Any:
    """Ray, connected to the cluster; none is started unless the user asked for it."""
    ray = ray_package()
    if ray.is_initialized():
        return ray
    quiet = {"log_to_driver": True, "configure_logging": False}
    if options.address == "local":
        ray.init(address="local", include_dashboard=False, **quiet)
        return ray
    address = options.address or os.environ.get("RAY_ADDRESS") or "auto"
    if address.startswith("ray://"):
        raise PlanError(
            f"RAY_ADDRESS is that of a client ({address}), and every batch would pass a proxy. Run "
            "the program on a node of the cluster."
        )
    try:
        ray.init(address=address, **quiet)
    except ConnectionError as error:
        raise WorkerError(
            f"there is no Ray cluster at {address!r}: {error}. Start one (`ray start --head`), "
            "name another one (`RayOptions(address=...)`, `RAY_ADDRESS`), or write "
            "`RayOptions(address='local')` to try it on this machine."
        ) from error
    return ray


class RayCluster:
    """Actors, one for each worker."""

    def __init__(
        self, options: RayOptions, make_luggage: Callable[[], Luggage], paths: Sequence[str]
    ) -> None:
        self._ray = connect(options)
        self._options, self._paths = options, list(paths)
        self._make_luggage = make_luggage
        self._luggage: tuple[Any, ...] | None = None
        self._warm = WarmMemory()
        self._drained_at, self._draining = -1e9, set[str]()
        self._clock, self._looked_at = 0.0, time.monotonic()

    def start(self, index: int) -> tuple[Any, Any]:
        options = self._options
        asked: dict[str, Any] = {
            "num_cpus": options.num_cpus,
            "max_restarts": 0,
            "max_task_retries": 0,
            "max_concurrency": 1,
            # Outside of the placement group of the program: a trainer's bundle has no room for
            # these.
            "scheduling_strategy": "SPREAD",
        }
        if options.memory is not None:
            asked["memory"] = options.memory
        if options.resources:
            asked["resources"] = dict(options.resources)
        if options.label_selector:
            asked["label_selector"] = dict(options.label_selector)
        if options.runtime_env:
            asked["runtime_env"] = dict(options.runtime_env)
        ray = self._ray

        class Worker(ClusterWorker):
            """Knows its node, which only Ray can tell."""

            def hello(self, node: str, paths: Sequence[str]) -> WorkerGreeting:
                import ray

                return super().hello(ray.get_runtime_context().get_node_id(), paths)

        most = None if is_open(options.num_workers) else cluster_bounds(options.num_workers).most
        here = options.num_local_workers
        count = here + max(index + 1, most or 0)
        actor = ray.remote(Worker).options(**asked).remote(here + index, count)
        return actor, actor.hello.remote("", self._paths)

    def instruct(self, worker: Any) -> Any:
        if self._luggage is None:
            luggage = self._make_luggage()
            search = [path for path in sys.path if path]
            # Once for all workers; workers of a node map the node's copy.
            pickled = self._ray.put(np.frombuffer(luggage.pickled, np.uint8))
            arrays = [self._ray.put(np.frombuffer(each, np.uint8)) for each in luggage.buffers]
            self._luggage = luggage.prepare, search, pickled, *arrays
        return worker.begin.remote(*self._luggage)

    def run(self, worker: Any, message: TaskMessage) -> Any:
        pickled, arrays, _ = packed_value(message, message.given is not None)
        # Ray sends bytes unchanged, and pickles other values in its own way.
        return worker.run.remote(pickled, arrays) if arrays else worker.run.remote(pickled)

    def wait(self, calls: Collection[Any], seconds: float | None) -> list[Any]:
        # All that are ready, if any are: asking takes longer the more there is to ask for.
        asked = list(calls)
        if not asked:
            time.sleep(seconds or 0.0)  # There is no call to wait for.
            return []
        done, _ = self._ray.wait(asked, num_returns=len(asked), timeout=0)
        if not done and seconds != 0:
            done, _ = self._ray.wait(asked, num_returns=1, timeout=seconds)
        return list(done)

    def is_made(self, call: Any) -> bool:
        made, _ = self._ray.wait([call], timeout=0, fetch_local=False)
        return bool(made)

    def ready(self, call: Any) -> Any:
        return self._got(call)

    def outcome(self, call: Any) -> tuple[Outcome, int]:
        is_outcome, packed = self._got(call)
        if not is_outcome:
            raise TaskFault(packed[0].decode(errors="replace"))
        return self._unpacked(packed), size_of(packed)

    def _unpacked(self, packed: Packed) -> Outcome:
        """A received value, in writable memory: Ray's own is read-only."""
        if not self._options.writable:
            outcome: Outcome = unpacked(packed)
            return outcome
        arrays = []
        for array, writable in zip(packed[1], packed[2], strict=True):
            copied = array.copy() if array.nbytes < _SMALL else self._warm.take(array.nbytes)
            if array.nbytes >= _SMALL:
                copied[:] = array
            copied.flags.writeable = writable
            arrays.append(copied)
        outcome = unpacked(packed, arrays)
        return outcome

    def _got(self, call: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(call)
        except errors.OutOfMemoryError as error:
            raise WorkerGone(MEMORY, _first_line(error)) from error
        except errors.NodeDiedError as error:
            raise WorkerGone(NODE, _first_line(error)) from error
        except errors.ActorUnavailableError as error:
            raise WorkerGone(UNREACHABLE, _first_line(error)) from error
        except (errors.ActorUnschedulableError, errors.RuntimeEnvSetupError) as error:
            raise TaskFault(str(error)) from error
        except errors.RayActorError as error:
            text = str(error)
            if "actor_init_failed" in text or "creation task failed" in text:
                raise TaskFault(text) from error
            raise WorkerGone(_why(text), _first_line(error)) from error
        except errors.RayTaskError as error:
            raise TaskFault(str(error)) from error
        except errors.ObjectLostError as error:
            raise ResultLost(_first_line(error)) from error

    def noted(self, worker: WorkerGreeting) -> Noted:
        ray = self._ray
        place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            node_id=worker.node, soft=False
        )
        reading = ray.remote(read_page).options(
            num_cpus=0, max_retries=0, scheduling_strategy=place
        )
        call = None
        try:
            call = reading.remote(worker.page)
            noted: Noted = ray.get(call, timeout=_NOTES_SECONDS)
            return noted
        except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
            if call is not None:
                with suppress(Exception):
                    ray.cancel(call, force=True)
            return NOTHING_NOTED

    def draining(self) -> set[str]:
        # Asked every few seconds. This is no public function of Ray, but there is none; without it,
        # a draining node would be noticed only when it is gone.
        if time.monotonic() - self._drained_at > 5.0:
            self._drained_at = time.monotonic()
            with suppress(Exception):
                state = self._ray._private.state.state
                self._draining = set(state.get_draining_nodes())
        return self._draining

    def end(self, worker: Any) -> None:
        if self._ray.is_initialized():
            with suppress(Exception):
                worker.leave.remote()
            with suppress(Exception):
                self._ray.kill(worker)

    def _wanted(self) -> dict[str, float]:
        """The resources of one worker."""
        options = self._options
        wanted: dict[str, float] = {"CPU": options.num_cpus, **options.resources}
        if options.memory is not None:
            wanted["memory"] = options.memory
        return wanted

    def places(self) -> int | None:
        if is_open(self._options.num_workers):
            free = self._ray.available_resources()
            shares = [free.get(name, 0) // each for name, each in self._wanted().items() if each]
            return int(min(shares, default=_MOST_AT_ONCE))
        return None

    def room(self) -> str:
        options = self._options
        asked = f"{options.num_workers} workers with {self._wanted()} each"
        if options.label_selector:
            asked += f" on nodes with the labels {dict(options.label_selector)}"
        nodes = [node for node in self._ray.nodes() if node["Alive"]]
        free = {
            name: round(value, 2)
            for name, value in self._ray.available_resources().items()
            if not name.startswith(("node:", "object_store"))
        }
        return f"requested were {asked}; there are {len(nodes)} nodes, with {free} free"

    def now(self) -> float:
        now = time.monotonic()
        # If this program was stopped, or did not look for a while, workers are not late because of
        # that.
        self._clock += min(now - self._looked_at, _MOST_SECONDS_BETWEEN_LOOKS)
        self._looked_at = now
        return self._clock

    def close(self) -> None:
        self._luggage = None


def _first_line(error: Exception) -> str:
    """Ray's description of an end, in one line."""
    return " ".join(str(error).split())[:300]


def _why(text: str) -> str:
    """What ended an actor, according to Ray."""
    if "its worker process has died" in text or "ray.kill" in text:
        return PROCESS
    return NODE if "node" in text.lower() else PROCESS
