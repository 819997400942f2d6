"""What a method of a dataset needs to know of the dataset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from bushel.node import Node


class Chain(ABC):
    """Something to which a step can be added."""

    @abstractmethod
    def _own_node(self) -> Node:
        """The step that this dataset ends with."""

    @abstractmethod
    def _then(self, node: Node) -> Any:
        """A dataset of the same kind that ends with this step."""
