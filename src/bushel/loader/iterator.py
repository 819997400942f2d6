"""The iterator of a `DataLoader`; its states, JSON in bytes, are compared with the loader."""

import functools
import json
import operator
import os
from collections.abc import Awaitable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import numpy as np

from bushel.checkpoint.code_and_files import made_with, tell_changes
from bushel.checkpoint.differences import differing_fields, differing_steps
from bushel.checkpoint.signed import VERSION, check_depth, is_pipeline, made_of
from bushel.core.closing import Closing
from bushel.core.options import DatasetOptions
from bushel.core.places import OptionsNode
from bushel.core.state import State, copy_state, innermost_index
from bushel.deliver.iterator import StreamIterator
from bushel.deliver.open import iterator_over, open_node
from bushel.deliver.saving import load_from, save_into
from bushel.errors import StateError, StateRangeError
from bushel.loader.chain import Chain
from bushel.loader.recipe import Recipe
from bushel.transforms.base import FlatMap

if TYPE_CHECKING:
    # Nothing in the arguments of a loader says what its elements are (see dataset/base.py).
    import typing_extensions

    from bushel.watch.explanation import Explanation
    from bushel.watch.stats import Stats

    T = typing_extensions.TypeVar("T", default=Any)
else:
    T = TypeVar("T")


class Loader(Protocol[T]):
    """A `DataLoader`, which is far above."""

    _recipe: Recipe

    def __iter__(self) -> "DataLoaderIterator[T]": ...


class DataLoaderIterator(Closing, Generic[T]):
    """Iterator over a loader; its state is JSON in bytes."""

    def __init__(
        self,
        data_loader: Loader[T],
        state: bytes | None,
        validate_state: bool = True,
        *,
        options: DatasetOptions | None = None,
    ) -> None:
        # The loader lives as long as somebody iterates: its workers end with it.
        self._data_loader = data_loader
        self._recipe = data_loader._recipe
        self._chain = Chain(self._recipe)
        node = self._chain.node()
        self._made_with = functools.cache(lambda: made_with(node))
        if options is not None:
            node = OptionsNode(node, options)
        self._iterator: StreamIterator[T] = iterator_over(open_node(node), [], node=node)
        if state is not None:
            self._restore(_decode(state), validate_state)

    def __iter__(self) -> "DataLoaderIterator[T]":
        return self

    def __next__(self) -> T:
        # (An interrupt may strike after a call, such as that of `next`, before its result is here.)
        for element in self._iterator:
            return element
        raise StopIteration

    def stats(self) -> "Stats":
        """What the loop waited for so far, and what the steps did (see `bushel.iterate`)."""
        return self._iterator.stats()

    def report(self, path: "str | os.PathLike[str]", *, private: bool = True) -> None:
        """Writes a page about the run so far (see `StreamIterator.report`)."""
        self._iterator.report(path, private=private)

    def trace(self, seconds: float, path: "str | os.PathLike[str]") -> None:
        """Notes when each step works, for a while (see `StreamIterator.trace`)."""
        self._iterator.trace(seconds, path)

    def get_state(self) -> bytes:
        """The position, with what identifies sampler, source and operations, as JSON."""
        return json.dumps(self.state_dict(), indent=4).encode()

    def state_dict(self) -> dict[str, Any]:
        """The same as a dict, under the name that torch's stateful loaders give it."""
        shards = self._recipe.shard_options
        state, made = self._iterator._state(), self._made_with()
        taken = innermost_index(state)
        last_seen = shards.shard_index + (taken - 1) * shards.shard_count
        return {
            "version": 2,
            "last_seen_indices": {"0": last_seen},
            "last_worker_index": -1,
            "worker_count": 0,
            "sampler": repr(self._recipe.sampler),
            "data_source": _show_source(self._recipe.data_source),
            "bushel": {
                "version": VERSION,
                "shard": self._chain.describe_shard(),
                "operations": self._chain.describe_operations(),
                "state": copy_state(state),
                **({"made_with": copy_state(made)} if made else {}),
            },
        }

    def set_state(self, state: bytes, strict: bool = False) -> None:
        """Goes to a saved position, after checking that it belongs to this loader.

        Code and files that changed since are warned of, or refused if it is to be `strict`.
        """
        self._restore(_decode(state), True, strict)

    def load_state_dict(self, state: dict[str, Any], strict: bool = False) -> None:
        """Goes to a position that `state_dict` returned."""
        if not isinstance(state, dict):
            raise StateError(
                f"`load_state_dict` takes the dict of `state_dict()`, and got a "
                f"{type(state).__name__}; for what `get_state()` returned, there is `set_state`."
            )
        check_depth(state)
        self._restore(copy_state(state), True, strict)

    async def save(self, directory: Any) -> Awaitable[None]:
        """Takes the state, and returns what writes it into a folder, as Orbax asks for it."""
        return save_into(directory, self.state_dict())

    async def load(self, directory: Any) -> Awaitable[None]:
        """Reads the state from a folder that `save` or a `CheckpointHandler` wrote."""
        return load_from(directory, self.load_state_dict)

    def _restore(self, saved: dict[str, Any], validate: bool, strict: bool = False) -> None:
        if not validate:
            self._iterator._go_to(self._position_in(saved))
            return
        self._validate(saved)
        position = self._position_in(saved)
        self._iterator._go_to(
            position, lambda: tell_changes(made_of(saved), self._made_with, strict)
        )

    def position_in(self, state: bytes | dict[str, Any]) -> State:
        """The place in the stream that a state means, after checking that it is of this loader."""
        saved = copy_state(state) if isinstance(state, dict) else _decode(state)
        self._validate(saved)
        return self._position_in(saved)

    def _validate(self, saved: dict[str, Any]) -> None:
        if self._is_grains_expanding(saved):
            return
        _refuse_datasets(saved)
        current = {
            "sampler": repr(self._recipe.sampler),
            "data_source": _show_source(self._recipe.data_source),
        }
        if saved.get("worker_count", 0) != 0:
            # Grain's workers each read every n-th record: there is no one place to go to.
            raise StateError(
                f"this state was saved by Grain with worker_count={saved['worker_count']!r}, which "
                "reads in another order. States that bushel saved fit any number of workers."
            )
        signature = saved.get("bushel", {})
        if not isinstance(signature, dict):
            raise StateError(f"the 'bushel' entry of this state is damaged: {signature!r:.200}.")
        differences = [
            _difference(name, saved.get(name), now)
            for name, now in current.items()
            if saved.get(name) != now
        ]
        if "bushel" in saved:
            differences += self._differences(signature)
        if differences:
            raise StateError("\n".join(differences))

    def _is_grains_expanding(self, saved: dict[str, Any]) -> bool:
        """Whether Grain saved this state for a loader with a `FlatMap`.

        Such a state is that of a dataset with the same steps, and names neither sampler nor source.
        """
        return saved.keys() == {"parent", "next_index_in_buffer"} and any(
            isinstance(operation, FlatMap) for operation in self._recipe.operations
        )

    def _differences(self, signature: dict[str, Any]) -> Iterator[str]:
        """What differs among the things that Grain's states do not mention."""
        if signature.get("version") != VERSION:
            raise StateError(
                f"this state has version {signature.get('version')!r}; this release of bushel "
                f"reads version {VERSION}."
            )
        shard = self._chain.describe_shard()
        if signature.get("shard") != shard:
            yield (
                f"this state belongs to shard {signature.get('shard')}, and this DataLoader reads "
                f"shard {shard}."
            )
        before, now = signature.get("operations"), self._chain.describe_operations()
        if not is_pipeline(before):
            raise StateError(f"this state is damaged: its operations are {before!r:.200}.")
        if before != now:
            different = differing_steps(before, now, "operation")
            yield f"this state belongs to other operations: {different}."

    def _position_in(self, saved: dict[str, Any]) -> State:
        signature = saved.get("bushel")
        if isinstance(signature, dict):
            position = signature.get("state")
            if not isinstance(position, dict):
                raise StateError(f"this state is damaged: its position is {position!r}.")
            return position
        if self._is_grains_expanding(saved):
            return saved
        # Written by Grain: the index of the last record that was read.
        shards = self._recipe.shard_options
        try:
            last_seen = operator.index(saved["last_seen_indices"]["0"])
        except (KeyError, TypeError) as error:
            raise StateError(f"this state has no position: {saved!r:.200}.") from error
        taken, rest = divmod(last_seen - shards.shard_index, shards.shard_count)
        if rest or taken < -1:
            raise StateRangeError(
                f"this state is at step {last_seen}, which is no step of shard "
                f"{shards.shard_index} of {shards.shard_count}."
            )
        return {"next_index": taken + 1}

    def start_prefetch(self) -> None:
        """Begins background work, if there is any, before the first element is asked for."""
        self._iterator.start_prefetch()

    def close(self) -> None:
        """Stops all threads and worker processes; may be called more than once."""
        self._iterator.close()

    def explain(self) -> "Explanation":
        """Tells the steps that the elements go through, and where each of them runs."""
        return self._iterator.explain()

    def _repr_html_(self) -> str:
        return self.explain()._repr_html_()

    def __repr__(self) -> str:
        return f"DataLoaderIterator({self._data_loader!r})"

    def __str__(self) -> str:
        return f"PyGrainDatasetIterator(state={self.get_state().decode()})"


def _show_source(source: Any) -> str:
    # Not the contents: a list of a million records would be in every checkpoint.
    if isinstance(source, (list, tuple, np.ndarray)):
        return str(type(source))
    if isinstance(source, dict) and all(isinstance(name, str) for name in source):
        return f"dict with keys {sorted(source)}"
    return repr(source)


def _refuse_datasets(state: dict[str, Any]) -> None:
    signature = state.get("bushel")
    is_ours = isinstance(signature, dict) and "pipeline" in signature
    if is_ours or not state.keys() & {"last_seen_indices", "sampler", "data_source", "bushel"}:
        raise StateError(
            "this is no state of a DataLoader: one that a dataset's iterator saved is restored "
            f"into `iter(dataset)` of a dataset with the same steps. It is {state!r:.200}."
        )


def _decode(state: Any) -> dict[str, Any]:
    if isinstance(state, dict):
        check_depth(state)
        _refuse_datasets(state)
        raise StateError(
            "`set_state` takes the bytes of `get_state()`, and this is a dict; for what "
            "`state_dict()` returned, there is `load_state_dict`."
        )
    if not isinstance(state, (bytes, bytearray)):
        raise StateError(
            f"a DataLoader's state is bytes, as `get_state()` returned it, and this is a "
            f"{type(state).__name__}."
        )
    from bushel.checkpoint.folders import decode

    return decode(bytes(state), "this state")


def _difference(name: str, before: Any, now: str) -> str:
    fields = differing_fields(before, now) if isinstance(before, str) else None
    if fields is not None:
        return f"this state belongs to another {name}: {fields}."
    hint = ""
    if " at 0x" in now:
        hint = f"\nGive the {name}'s class a `__repr__` that is the same in every run."
    return (
        f"this state belongs to another {name}.\nIn the state: {before}\n"
        f"In this DataLoader: {now}{hint}"
    )
