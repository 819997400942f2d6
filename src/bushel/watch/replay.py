"""`bushel replay`: runs a recorded step again, and compares checksums."""

import os
import zipfile
from typing import Any

import numpy as np

from bushel.checkpoint.differences import differing_steps
from bushel.core.frozen import frozen
from bushel.core.tree import leaves_with_paths
from bushel.errors import FileError, PlanError, StateError
from bushel.watch.checksum import checksum
from bushel.watch.recorder import steps_of
from bushel.watch.recording import Recording


@frozen
class Compared:
    """The recorded and the new checksum of a step; None if there is none."""

    step: int
    recorded: str | None
    now: str | None

    @property
    def equal(self) -> bool | None:
        """Whether they are equal; None if one of them is unknown."""
        if self.recorded is None or self.now is None:
            return None
        return self.recorded == self.now

    def __str__(self) -> str:
        if self.equal:
            return f"checksum of step {self.step:,} equal ({self.now})"
        if self.equal is None:
            return f"no checksum of step {self.step:,} " + (
                "was recorded" if self.recorded is None else "can be made now"
            )
        return f"checksum of step {self.step:,} differs: it was {self.recorded}, and is {self.now}"


@frozen
class Replayed:
    """A step that was made again."""

    step: int
    element: Any
    # The step at whose state it began, and the results for that step and for the requested one.
    start: int
    checks: tuple[Compared, ...]
    # A note about a step that is not in the recording; empty for one that is.
    beyond: str = ""

    @property
    def differs(self) -> bool:
        """Whether anything differs from the recording."""
        return any(check.equal is False for check in self.checks)


def replayed(recording: Recording, dataset: Any, step: int) -> Replayed:
    """Makes a step of a run again, from the last state before it.

    The pipeline must be the one that was recorded, with any number of workers.
    """
    start = recording.before(step)
    first: int = start["step"]
    iterator = iter(dataset)
    try:
        _restore(recording, iterator, start["state"])
        checks: list[Compared] = []
        for number in range(first, step + 1):
            try:
                element = next(iterator)
            except StopIteration:
                raise PlanError(
                    f"there is no step {step:,}: the data ends after {number:,} steps."
                ) from None
            except Exception:
                if number == step:
                    raise
                continue  # An exception was in place of an element then, too.
            if number in (first, step):
                recorded = recording.checksum_at(number)
                if recorded is not None or number == step:
                    checks.append(Compared(number, recorded, checksum(element)))
        return Replayed(step, element, first, tuple(checks), recording.beyond(step))
    finally:
        iterator.close()


def check_pipeline(recording: Recording, dataset: Any) -> None:
    """Refuses a pipeline other than the recorded one."""
    states = (entry["state"] for entry in recording.entries if entry.get("state") is not None)
    for state in states:
        iterator = iter(dataset)
        try:
            _restore(recording, iterator, state)
        finally:
            iterator.close()
        return


def _restore(recording: Recording, iterator: Any, state: Any) -> None:
    try:
        iterator.load_state_dict(recording.whole_state(state))
    except StateError:
        stream = getattr(iterator, "_iterator", iterator)
        different = differing_steps(recording.pipeline, steps_of(stream))
        is_loader = stream is not iterator
        if not different or is_loader != ("loader" in recording.header):
            raise
        raise StateError(
            f"{recording.path!r} was recorded of another pipeline: {different}."
        ) from None


def save_element(path: str | os.PathLike[str], element: Any) -> list[str]:
    """Saves the leaves of an element in a new .npz file; returns their names.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_element(f"{folder}/batch.npz", {"x": np.arange(3), "more": ("text", b"bytes")})
    ['x', 'more.0', 'more.1']
    """
    arrays: dict[str, Any] = {}
    for place, leaf in leaves_with_paths(element):
        name = ".".join(map(str, place)).replace("/", "_") or "element"
        array = np.frombuffer(leaf, np.uint8) if isinstance(leaf, bytes) else np.asarray(leaf)
        if array.dtype.hasobject or name in arrays:
            raise FileError(
                f"{name!r} of this element cannot be saved as an array: it is a "
                f"{type(leaf).__name__}. Without `--save`, it is shown only."
            )
        arrays[name] = array
    name = os.fspath(path)
    try:
        # (`numpy.savez` reserves some names.)
        with zipfile.ZipFile(name, "x", zipfile.ZIP_STORED) as archive:
            for part, array in arrays.items():
                with archive.open(f"{part}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    except FileExistsError:
        raise FileError(f"{name!r} is there already: give a new file to save to.") from None
    return list(arrays)
