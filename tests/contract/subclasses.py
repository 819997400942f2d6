"""Datasets of users."""

from typing import Any

from bushel import DatasetIterator, IterDataset, MapDataset
from tests.contract.failing_parts import boom
from tests.contract.parts import record


class Reversed(MapDataset[Any]):
    """A user's own random-access dataset."""

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        epoch, offset = divmod(index, len(self))
        return self._parent[epoch * len(self) + len(self) - 1 - offset]


class Pairs(IterDataset[Any]):
    """A user's own stream: each element with the one before it."""

    def __iter__(self) -> "PairsIterator":
        return PairsIterator(self._parent.__iter__())


class PairsIterator(DatasetIterator[Any]):
    def __init__(self, parent: DatasetIterator[Any]) -> None:
        super().__init__(parent)
        self._last = -1

    def __next__(self) -> Any:
        element = next(self._parent)
        last, self._last = self._last, int(element["id"])
        return {**element, "last": last}

    def get_state(self) -> dict[str, Any]:
        return {"parent": self._parent.get_state(), "last": self._last}

    def set_state(self, state: dict[str, Any]) -> None:
        self._parent.set_state(state["parent"])
        self._last = state["last"]


class Generated(IterDataset[Any]):
    """A user's own stream whose iterator is a plain generator, without a state."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size

    def __iter__(self) -> Any:
        return map(record, range(self._size))


class BoomDataset(MapDataset[Any]):
    """One that fails."""

    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        return boom(self._parent[index])
