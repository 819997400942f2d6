"""Saves and loads states of iterators in the folders that Orbax makes."""

from collections.abc import Awaitable, Callable
from typing import Any

from bushel.deliver.device import process_index_and_count, wait_for_all_processes


async def _write(directory: Any, text: bytes) -> None:
    from bushel.checkpoint.folders import write_encoded

    # Orbax's folders are made in the background; a path is taken for one that is there.
    wait = getattr(directory, "await_creation", None)
    folder = directory if wait is None else await wait()
    index, count = process_index_and_count()
    write_encoded(folder, text, index, count)
    if count > 1:
        import asyncio

        # Orbax renames the folder when the first process is done with it. And its loop must not
        # wait here: there may be a model to be saved, for which others wait.
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, wait_for_all_processes, f"saved to {folder}")


def save_into(directory: Any, state: object) -> Awaitable[None]:
    """Encodes a state now, and returns what writes it when the folder is there."""
    from bushel.checkpoint.folders import encode

    return _write(directory, encode(state))


async def _nothing() -> None:
    pass


def load_from(directory: Any, restore: Callable[[dict[str, Any]], None]) -> Awaitable[None]:
    """Restores the state in a folder; nothing is left to wait for.

    All at once, because whatever fails in what Orbax waits for becomes another error there,
    which does not say why.
    """
    from bushel.checkpoint.folders import read_state

    restore(read_state(directory, *process_index_and_count()))
    return _nothing()
