"""Checkpoints through Orbax: the one file that imports it."""

from dataclasses import dataclass
from typing import Any

from bushel.checkpoint.code_and_files import restore_into
from bushel.checkpoint.folders import encode, read_state, write_encoded

try:
    # At module level, unlike other optional dependencies, as the classes need it for their bases.
    import orbax.checkpoint as ocp
except ImportError as error:
    raise ImportError(
        "checkpoints through Orbax need the package orbax-checkpoint: "
        'pip install "bushel[orbax]". Without it, save what `iterator.get_state()` returns.'
    ) from error


def _process() -> tuple[int, int]:
    from bushel.deliver.device import process_index_and_count

    return process_index_and_count()


def _check_item(item: Any) -> None:
    if hasattr(item, "get_state") and hasattr(item, "set_state"):
        return
    hint = " Write `iter(...)` around it." if hasattr(item, "__iter__") else ""
    raise TypeError(
        "what is saved and restored is the iterator of a dataset or DataLoader, which has "
        f"`get_state` and `set_state`, and this is a {type(item).__name__}.{hint}"
    )


@dataclass
class CheckpointSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The argument with which Orbax saves an iterator.

    >>> import orbax.checkpoint as ocp, tempfile
    >>> from bushel import MapDataset
    >>> iterator = iter(MapDataset.range(9).shuffle(seed=1))
    >>> first = next(iterator)
    >>> with tempfile.TemporaryDirectory() as folder, ocp.CheckpointManager(folder) as manager:
    ...     saved = manager.save(1, args=ocp.args.Composite(data=CheckpointSave(iterator)))
    ...     expected = next(iterator)  # The state is that of the moment of `save`.
    ...     manager.wait_until_finished()
    ...     args = ocp.args.Composite(data=CheckpointRestore(iterator))
    ...     restored = manager.restore(1, args=args)["data"]
    >>> restored is iterator, next(iterator) == expected
    (True, True)
    """

    item: Any

    def __post_init__(self) -> None:
        _check_item(self.item)


@dataclass
class CheckpointRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """The argument with which Orbax restores an iterator, which goes to the saved position.

    `strict` refuses a state whose functions or files have changed since it was saved.
    """

    item: Any
    strict: bool = False

    def __post_init__(self) -> None:
        _check_item(self.item)


class CheckpointHandler(ocp.AsyncCheckpointHandler):  # type: ignore[misc]
    """Writes the state of an iterator into Orbax's folders, one JSON file for each process.

    Any object with `get_state` and `set_state` can be saved, if its state is a dict of plain values
    or JSON in bytes. Files written by Grain's handler can be read, too.
    """

    def save(self, directory: Any, item: Any = None, args: Any = None) -> None:
        """Writes the state of an iterator into a folder."""
        write_encoded(directory, _state_of(item, args), *_process())

    async def async_save(self, directory: Any, item: Any = None, args: Any = None) -> list[Any]:
        """Takes the state now, and writes it in one of Orbax's threads once the folder exists."""
        text, process = _state_of(item, args), _process()

        async def write() -> None:
            write_encoded(directory, text, *process)

        return [ocp.future.CommitFutureAwaitingContractedSignals(write(), name="bushel_save")]

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        """Moves an iterator to the saved position, starts its prefetching, and returns it."""
        item = _item_of(item, args)
        state = read_state(directory, *_process())
        takes_bytes = isinstance(item.get_state(), (bytes, bytearray))
        strict = args is not None and args.strict
        restore_into(item, encode(state) if takes_bytes else state, strict)
        if hasattr(item, "start_prefetch"):
            item.start_prefetch()
        return item

    def structure(self, directory: Any) -> Any:
        """Nothing: no structure of a state need be known in advance."""
        return None

    def metadata(self, directory: Any) -> Any:
        """Nothing: a state has no arrays to describe."""
        return None

    def finalize(self, directory: Any) -> None:
        """Nothing: files are complete as soon as they exist."""

    def close(self) -> None:
        """Nothing: the handler holds no resources."""


# With the handler registered for these arguments, Orbax needs no further configuration.
ocp.args.register_with_handler(CheckpointHandler, for_save=True)(CheckpointSave)
ocp.args.register_with_handler(CheckpointHandler, for_restore=True)(CheckpointRestore)


def _item_of(item: Any, args: Any) -> Any:
    if args is not None:
        item = args.item
    _check_item(item)
    return item


def _state_of(item: Any, args: Any) -> bytes:
    return encode(_item_of(item, args).get_state())
