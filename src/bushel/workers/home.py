"""Keeps the workers of a loader or dataset between two passes.

A home is made with the dataset, long before there are workers to keep in it. So it imports next to
nothing.
"""

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from bushel.core.options import MultiprocessingOptions, WorkersKey
from bushel.core.ray_options import RayOptions
from bushel.workers import early_nursery

if TYPE_CHECKING:
    from bushel.workers.cluster.pool import ClusterPool
    from bushel.workers.fragment import Fragment
    from bushel.workers.payload import Payload
    from bushel.workers.seam import ResizablePool
    from bushel.workers.start import Starter


class Home:
    """Where the workers of a loader or dataset stay between two passes.

    They are kept warm for the next pass, and end with the loader or dataset.
    """

    def __init__(self) -> None:
        self._kept: list[ResizablePool] = []
        self._payload: list[Payload] = []
        weakref.finalize(self, _end_all, self._kept, self._payload)

    def take(
        self,
        fragments: "list[Fragment]",
        worker_init: Any,
        options: MultiprocessingOptions | RayOptions,
    ) -> "ResizablePool":
        """Returns free workers, or new ones."""
        while self._kept:
            pool = self._kept.pop()
            if not pool.closed:
                return pool
        return self.pool(fragments, worker_init, options)

    def pool(
        self,
        fragments: "list[Fragment]",
        worker_init: Any,
        options: MultiprocessingOptions | RayOptions,
        starter: "Starter | None" = None,
    ) -> "ResizablePool":
        """Makes a pool, whose processes may have been started already."""
        make_payload = partial(_payload_of, fragments, worker_init, self._payload)
        if isinstance(options, RayOptions):
            cluster = _on_a_cluster(fragments, worker_init, options)
            if not options.num_local_workers:
                return cluster
            from bushel.workers.cluster.joint_pool import joint_pool

            return joint_pool(fragments, make_payload, cluster, options)
        from bushel.workers.pool import Pool

        return Pool(fragments, make_payload, options, starter)

    @property
    def has_workers(self) -> bool:
        """Whether there are free workers here."""
        return any(not pool.closed for pool in self._kept)

    def give_back(self, pool: "ResizablePool") -> None:
        """Keeps workers that are done, unless others are kept already."""
        self._kept[:] = [other for other in self._kept if not other.closed]
        if self._kept or pool.closed:
            pool.close()
        else:
            self._kept.append(pool)

    def close(self) -> None:
        """Ends the workers that are kept."""
        while self._kept:
            self._kept.pop().close()


_homes: "weakref.WeakKeyDictionary[WorkersKey, Home]" = weakref.WeakKeyDictionary()


def home_of(key: WorkersKey) -> Home:
    """The home of the workers of a dataset or loader, which ends with that."""
    home = _homes.get(key)
    if home is None:
        home = _homes.setdefault(key, Home())
    return home


def expect_workers(key: WorkersKey) -> None:
    """Starts what workers need in advance."""
    early_nursery.expect(home_of(key))


def _payload_of(fragments: "list[Fragment]", worker_init: Any, made: "list[Payload]") -> "Payload":
    """The payload of workers; made once, and kept in the list."""
    from bushel.workers.payload import Payload, part_of

    if not made:
        parts = [part_of(node) for fragment in fragments for node in fragment.nodes()]
        made.append(Payload(fragments, worker_init, parts))
    return made[0]


def _on_a_cluster(
    fragments: "list[Fragment]", worker_init: Any, options: RayOptions
) -> "ClusterPool":
    from bushel.checkpoint.code_and_files import local_files
    from bushel.workers.cluster.pool import ClusterPool
    from bushel.workers.cluster.ray_cluster import RayCluster
    from bushel.workers.payload import luggage_of, part_of

    def make_cluster() -> RayCluster:
        nodes = [node for fragment in fragments for node in fragment.nodes()]
        pack = partial(luggage_of, fragments, worker_init, [part_of(node) for node in nodes])
        sources = [getattr(node, "source", None) for node in nodes]
        files = [path for source in sources if source is not None for path in local_files(source)]
        return RayCluster(options, pack, list(dict.fromkeys(files)))

    return ClusterPool(fragments, make_cluster, options, alone=not options.num_local_workers)


def _end_all(kept: "list[ResizablePool]", payload: "list[Payload]") -> None:
    while kept:
        kept.pop().close(politely=False)
    while payload:
        payload.pop().close()
