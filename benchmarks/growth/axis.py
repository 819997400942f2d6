"""What an axis is: something that grows, the pipelines that it grows in, and their law."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Takes the library (bushel and Grain have one API), the size and what `prepare` gave.
Make = Callable[[Any, int, Any], Any]


@dataclass(frozen=True, slots=True)
class Variant:
    """One pipeline to grow; a step of it delivers `elements` of them.

    `per_size` is for work that grows by itself: a hundred steps are a hundred times the work of
    one, so what must not grow is the cost of a step.
    """

    title: str
    make: Make
    elements: int = 32
    grain: bool = True
    per_size: bool = False


@dataclass(frozen=True, slots=True)
class Axis:
    """Sizes in growing order, and what is made for a size before the clock runs."""

    name: str
    title: str
    sizes: tuple[int, ...]
    variants: dict[str, Variant]
    prepare: Callable[[str, int, str], Any] | None = None
    # Seconds that a point may take once its library is there; a slower one is cut short.
    patience: float = 8.0
    # Seconds that it runs before its cost is taken.
    run_in: float = 0.1


def streamed(lib: Any, dataset: Any) -> Any:
    """Makes a stream with the options that nobody set.

    Grain's is made without threads: on light records its sixteen take twenty times as long.
    """
    if lib.__name__ == "bushel":
        return dataset.to_iter_dataset()
    return dataset.to_iter_dataset(lib.ReadOptions(num_threads=0))
