"""Refuses unsharded datasets in the worker processes of a torch `DataLoader`."""

import sys

from bushel.core.node import Node, walk
from bushel.errors import PlanError
from bushel.order.slice import SliceNode


def refuse_copies(node: Node) -> None:
    """Raises where each of several workers of torch would deliver the whole dataset.

    torch gives an iterable dataset to all of its workers, and takes elements from them in turn:
    every element would come once from each worker. A dataset reduced to every n-th element, for n
    workers, counts as a share.
    """
    # A worker of torch has imported torch.
    torch_data = sys.modules.get("torch.utils.data")
    worker = None if torch_data is None else torch_data.get_worker_info()
    if worker is None or worker.num_workers < 2:
        return
    steps = [step.step for step in walk(node) if isinstance(step, SliceNode)]
    if any(step % worker.num_workers == 0 for step in steps):
        return
    raise PlanError(
        f"this is worker {worker.id} of the {worker.num_workers} that a torch DataLoader has, and "
        f"each of them iterates over the whole dataset: every element would come "
        f"{worker.num_workers} times. Use bushel's own workers, `torch.utils.data.DataLoader(..., "
        "num_workers=0)` over a dataset with `.mp_prefetch(MultiprocessingOptions(num_workers="
        f"{worker.num_workers}))`; or give each worker its share of a random-access dataset: `info "
        "= torch.utils.data.get_worker_info()`, then `ds[info.id :: info.num_workers]` before "
        "anything else."
    )
