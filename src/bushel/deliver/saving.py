"""An iterator's `save` and `load`: its state in a folder that Orbax makes, process by process."""

from collections.abc import Awaitable, Callable
from typing import Any

from bushel.deliver.device import process_index_and_count, wait_for_all_processes


async def _write(directory: Any, text: bytes) -> None:
    from bushel.checkpoint.folders import write_encoded

    # Orbax creates its folders in the background; plain paths exist already.
    wait = getattr(directory, "await_creation", None)
    folder = directory if wait is None else await wait()
    index, count = process_index_and_count()
    write_encoded(folder, text, index, count)
    if count > 1:
        import asyncio

        # Orbax renames the folder when the first process is done with it. And this must not block
        # its loop: other processes may be waiting for a model to be saved.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, wait_for_all_processes, f"saved to {folder}")


def save_into(directory: Any, state: object) -> Awaitable[None]:
    """Encodes a state now, and returns an awaitable that writes it once the folder exists."""
    from bushel.checkpoint.folders import encode

    return _write(directory, encode(state))


async def _nothing() -> None:
    pass


def load_from(directory: Any, restore: Callable[[dict[str, Any]], None]) -> Awaitable[None]:
    """Restores the state in a folder; returns an awaitable that is done.

    Not in the awaitable, as Orbax replaces errors in it by others that do not tell the cause.
    """
    from bushel.checkpoint.folders import read_state

    restore(read_state(directory, *process_index_and_count()))
    return _nothing()
