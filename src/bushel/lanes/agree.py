"""How hosts agree on the number of steps, the least that any has ready; logs whom they wait for."""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from bushel.core.ending import end_with_program
from bushel.errors import AgreementError

_log = logging.getLogger("bushel")

# The seconds after which a log message tells which hosts are waited for; three times as long before
# each further message.
_SAY_AFTER_SECONDS = 5.0
_SAY_AGAIN = 3
# The first interval between checks whether waiting is still of use.
_FIRST_SLICE_SECONDS = 0.25
_LONGEST_SLICE_SECONDS = 2.0
_LEFT = "left"


class Board(Protocol):
    """A board on which processes of a job leave notes for each other, like JAX's coordinator.

    If a note is not there in time, the error has "DEADLINE_EXCEEDED" in its text.
    """

    def key_value_set(self, key: str, value: str) -> Any: ...

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str: ...

    def key_value_dir_get(self, key: str) -> Sequence[Any]: ...

    def key_value_delete(self, key: str) -> Any: ...


class Agreement:
    """Computes the minimum of the numbers of all processes, round by round.

    Process 0 reads the others' numbers and writes the result, so a job of n processes needs 2 n
    messages a round and no collective operation of the devices: a thread may ask while the training
    uses them.
    """

    def __init__(
        self,
        board: Board,
        index: int,
        count: int,
        name: str,
        timeout_s: float,
    ) -> None:
        """`timeout_s` is how long another process may take to reach the same step."""
        self._board, self._index, self._count, self._name = board, index, count, name
        self._timeout_s = timeout_s
        self._step = 0
        self._generation = self._round = 0
        self._asked = False
        self._closed = False
        self._old: list[str] = []
        # Held while a thread asks.
        self._asking = threading.Lock()
        end_with_program(self)

    def at_step(self, step: int) -> None:
        """Takes note of the step of the next round, for messages to a waiting user."""
        self._step = step

    def __call__(self, number: int) -> int:
        """Returns the minimum of this round's numbers."""
        with self._asking:
            return self._agree(number)

    def _agree(self, number: int) -> int:
        self._asked = True
        waiting = _WaitForHosts(self._step, number, self._timeout_s)
        if self._index:
            self._write(self._key(self._index), str(number))
        else:
            self._write(self._key("least"), self._least_with(number, waiting))
        answer = self._read(self._key("least"), waiting)
        # All processes are in this round, so none still reads the notes of the last one.
        for key in self._old[:-1]:
            self._board.key_value_delete(key)
        del self._old[:-1]
        self._round += 1
        self._asked = False
        if answer == _LEFT:
            raise AgreementError(
                "another process of this job closed its iterator, or restored it to another "
                "state, and this one did not. All processes of a job must do the same."
            )
        return int(answer)

    def _least_with(self, number: int, waiting: "_WaitForHosts") -> str:
        answers = [self._read(self._key(other), waiting) for other in range(1, self._count)]
        if _LEFT in answers:
            return _LEFT
        return str(min([number, *map(int, answers)]))

    def restart(self) -> None:
        """Begins anew; all processes do so when they restore a state."""
        self._leave()
        self._generation += 1
        self._round = 0

    def close(self) -> None:
        """Tells waiting threads, here or on other hosts, that waiting is of no use.

        Any thread may call it, and more than once.
        """
        if not self._closed:
            self._closed = True
            # The coordinator may be gone, and with it all readers of the note.
            with suppress(Exception):
                self._board.key_value_set(f"{self._name}/closed/{self._index}", "")
            self._leave()

    @property
    def threads(self) -> tuple[threading.Thread, ...]:
        """It has no threads of its own."""
        return ()

    def end_soon(self) -> None:
        """Closes, as threads that ask have to end with the program."""
        self.close()

    def end(self) -> None:
        """Closes, and waits until no thread asks any more: called at the end of the program."""
        self.close()
        if self._asking.acquire(timeout=2 * _LONGEST_SLICE_SECONDS):
            self._asking.release()

    def _leave(self) -> None:
        if not self._asked:
            with suppress(Exception):
                self._write(self._key(self._index or "least"), _LEFT)
        self._asked = False

    def _key(self, who: int | str) -> str:
        return f"{self._name}/{self._generation}/{self._round}/{who}"

    def _write(self, key: str, value: str) -> None:
        self._board.key_value_set(key, value)
        self._old.append(key)

    def _read(self, key: str, waiting: "_WaitForHosts") -> str:
        seconds = _FIRST_SLICE_SECONDS
        while True:
            try:
                return self._board.blocking_key_value_get(key, int(1000 * seconds))
            except Exception as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise
                self._check_that_all_are_here()
                if waiting.has_news():
                    self._tell(waiting, error)
            seconds = max(0.001, min(2 * seconds, _LONGEST_SLICE_SECONDS, waiting.left()))

    def _tell(self, waiting: "_WaitForHosts", error: Exception) -> None:
        """Logs which processes are waited for; raises after the timeout."""
        text = f"process {self._index} of {self._count} {waiting.describe(self._missing())}"
        if waiting.left() > 0:
            _log.warning(
                "%s. A process that has died or stopped is the usual reason; one that reads or "
                "compiles for long is another. After %.0f s this ends with an `AgreementError`.",
                text, self._timeout_s,
            )  # fmt: skip
            return
        raise AgreementError(
            f"{text}. All processes of a job must iterate over the same pipeline, for the same "
            "number of steps. If the others are only slow, allow more time: "
            f"`lanes(..., agree_timeout_s={10 * self._timeout_s:.0f})`."
        ) from error

    def _missing(self) -> list[int]:
        """The processes without a note in this round."""
        folder = self._key("")
        there = {str(key).rpartition("/")[2] for key, _ in self._board.key_value_dir_get(folder)}
        others = [number for number in range(1, self._count) if number != self._index]
        # Process 0 answers when all others have asked.
        return [number for number in others if str(number) not in there] or [0]

    def _check_that_all_are_here(self) -> None:
        if self._closed:
            raise AgreementError("this iterator was closed while it waited for other processes.")
        closed = self._board.key_value_dir_get(f"{self._name}/closed/")
        if closed:
            who = ", ".join(sorted(key.rpartition("/")[2] for key, _ in closed))
            raise AgreementError(
                f"process {who} of this job closed its iterator, or ended, and process "
                f"{self._index} asks for another step. All processes of a job must do the same."
            )


class _WaitForHosts:
    """How long a process has waited for others, and when to log it."""

    def __init__(self, step: int, ready: int, timeout_s: float) -> None:
        self._step, self._ready, self._timeout_s = step, ready, timeout_s
        self._began, self._began_at = time.monotonic(), time.strftime("%H:%M:%S")
        self._say_at = min(_SAY_AFTER_SECONDS, timeout_s)

    def left(self) -> float:
        """Seconds until the timeout."""
        return max(0.0, self._timeout_s - (time.monotonic() - self._began))

    def has_news(self) -> bool:
        """Whether it is time for a message."""
        waited = time.monotonic() - self._began
        if waited < self._say_at:
            return False
        while self._say_at <= waited:
            self._say_at *= _SAY_AGAIN
        self._say_at = min(self._say_at, max(self._timeout_s, waited))
        return True

    def describe(self, missing: Sequence[int]) -> str:
        """Which processes are waited for, since when, and at which step."""
        who = ", ".join(map(str, missing[:8])) + (" and others" if len(missing) > 8 else "")
        waited = time.monotonic() - self._began
        return (
            f"has waited at step {self._step} for process {who}, since {self._began_at} "
            f"({waited:.0f} s), to learn whether all have another step; it has {self._ready} ready"
        )
