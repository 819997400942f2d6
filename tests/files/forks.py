"""What happens in a process that was forked."""

import os
import signal
import warnings
from collections.abc import Callable

from tests.patience import PATIENCE_SECONDS


def true_in_a_fork(check: Callable[[], bool]) -> bool:
    """Asks something in a forked process, where of all threads only this one is left."""
    with warnings.catch_warnings():
        # Python's own advice not to do what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        signal.alarm(int(PATIENCE_SECONDS))
        answer = False
        try:
            answer = check()
        finally:
            os._exit(0 if answer else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
