"""The last step of a written pipeline: encodes elements as records of a format."""

from typing import Any

from bushel.errors import PlanError
from bushel.sources.written.element_layout import MisfitError
from bushel.transforms import base as transforms
from bushel.write.write_plan import WritePlan


class Encode(transforms.MapWithIndex):
    """Encodes an element for the files of a format."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def map_with_index(self, index: int, element: Any) -> Any:
        try:
            return self._plan.coding.encode(element, index)
        except MisfitError as misfit:
            raise cannot_be_written(misfit, self._plan.format) from None

    def __repr__(self) -> str:
        return f"encode({self._plan.format})"


def cannot_be_written(misfit: MisfitError, format: str) -> PlanError:
    """The error about an element that a format cannot hold."""
    return PlanError(f"this element cannot be written as {format}: {misfit}.")
