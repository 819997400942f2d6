"""The rank of this process in its job, whatever started the job: JAX, torch, Ray Train."""

from collections.abc import Callable

from bushel.deliver import device
from bushel.deliver.ray_train_job import ray_train_agreement, ray_train_process
from bushel.deliver.torch_job import torch_agreement, torch_process
from bushel.lanes.agree import Agreement

# Other kinds of jobs than JAX's, and how their processes agree; asked in turn, if there is no JAX
# job of several processes. Each returns None at once if there is no such job.
_OTHER_JOBS: tuple[
    tuple[Callable[[], tuple[int, int] | None], Callable[[float], Agreement]], ...
] = ((torch_process, torch_agreement), (ray_train_process, ray_train_agreement))


def process_of_job() -> tuple[int, int]:
    """Returns this process's number and the number of processes of its job.

    That is a JAX job of several processes, a `torch.distributed` job, what `torchrun`
    started, or a run of Ray Train; this process alone where there is none.
    """
    return _other_job()[0] or device.process_index_and_count()


def process_if_known() -> tuple[int, int]:
    """The same as far as it is known without starting JAX; else the only process."""
    return _other_job()[0] or device.process_if_known()


def agreement(timeout_s: float) -> Agreement:
    """Makes the function by which the processes of this job agree on a number.

    `timeout_s` is how long one of them may take longer.
    """
    return _other_job()[1](timeout_s)


def _other_job() -> tuple[tuple[int, int] | None, Callable[[float], Agreement]]:
    if device.process_if_known()[1] == 1:
        for ask, agree in _OTHER_JOBS:
            process = ask()
            if process is not None:
                return process, agree
    return None, device.agreement
