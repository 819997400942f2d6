"""What a workload is: work that several systems do, a gauge that measures it, and a goal.

The functions of a workload take the number of records and return what its gauge measures, which
for nearly all of them is an iterable of batches (one epoch). Those for bushel and Grain take the
library first: the two have one API, so one function serves both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any, Literal, Protocol, cast, get_args

from benchmarks.proof import Proof

System = Literal["hand", "bushel", "grain", "torch"]
SYSTEMS: tuple[System, ...] = get_args(System)

# What of a proof (see proof.py) two systems have in common; each word includes those before it.
Agreement = Literal["outline", "total", "order"]

# What comes out is whatever the workload's own gauge measures: batches, or a module's name.
Make = Callable[[int], Any]
MakeWith = Callable[[ModuleType, int], Any]
Function = Make | MakeWith


@dataclass(frozen=True, slots=True)
class Unit:
    name: str
    more_is_better: bool


RATE = Unit("/s", more_is_better=True)
BYTE_RATE = Unit("B/s", more_is_better=True)
MILLISECONDS = Unit("ms", more_is_better=False)
MEGABYTES = Unit("MB", more_is_better=False)
KILOBYTES = Unit("kB", more_is_better=False)
PERCENT = Unit("%", more_is_better=False)


class Gauge(Protocol):
    """Measures one contender, in its own process."""

    @property
    def unit(self) -> Unit: ...

    @property
    def fresh_process(self) -> bool:
        """Whether each reading needs a process in which nothing has run yet."""
        ...

    def prove(self, make: Make) -> Proof:
        """Runs a little of the work and says what was delivered."""
        ...

    def read(self, make: Make, seconds: float) -> float:
        """Takes one reading in `unit`, spending about `seconds` on it."""
        ...


@dataclass(frozen=True, slots=True)
class Goal:
    """What bushel has to reach: so many times another system, or less than so many units."""

    limit: float
    against: Literal["hand", "grain", "torch"] | None = None

    def describe(self, unit: Unit) -> str:
        if self.against is None:
            return f"< {self.limit:g} {unit.name}"
        return f">= {self.limit:g} {self.against}"


@dataclass(frozen=True, slots=True)
class Form:
    """One way to write the work with the library: one row of the table.

    `grain` is given only where bushel's `make` uses something that Grain does not have.
    `grain_agrees` says how far Grain can deliver the same: all of it; with worker processes that
    batch, the same records in another order; with random numbers in them too, other values. Where
    it is None, Grain takes no part.
    """

    title: str
    make: MakeWith
    goal: Goal | tuple[Goal, ...]
    grain: MakeWith | None = None
    grain_agrees: Agreement | None = "order"

    @property
    def goals(self) -> tuple[Goal, ...]:
        return self.goal if isinstance(self.goal, tuple) else (self.goal,)


@dataclass(frozen=True, slots=True)
class Workload:
    """Work to compare; `stated` holds figures that are known without a measurement."""

    name: str
    title: str
    gauge: Gauge
    forms: tuple[Form, ...]
    hand: Make | None = None
    torch: Make | None = None
    stated: Mapping[System, float] = field(default_factory=dict)

    def contenders(self, form: Form) -> list["Contender"]:
        """Gives who takes part in one row; by hand and torch are the same in all rows."""
        functions: dict[System, Function | None] = {
            "hand": self.hand,
            "bushel": form.make,
            "grain": (form.grain or form.make) if form.grain_agrees else None,
            "torch": self.torch,
        }
        return [Contender(system, function) for system, function in functions.items() if function]

    def all_contenders(self) -> dict[str, "Contender"]:
        """Gives all that is measured by name, each once, a system's own side by side."""
        everyone = [contender for form in self.forms for contender in self.contenders(form)]
        everyone.sort(key=lambda contender: SYSTEMS.index(contender.system))
        return {contender.name: contender for contender in everyone}

    def with_other_values(self) -> set[str]:
        """Names those whose elements cannot be compared with the others', only their kind."""
        loose = [form for form in self.forms if form.grain_agrees == "outline"]
        return {c.name for form in loose for c in self.contenders(form) if c.system == "grain"}


@dataclass(frozen=True, slots=True)
class Contender:
    """One system with the function it runs."""

    system: System
    function: Function

    @property
    def name(self) -> str:
        return f"{self.system}:{self.function.__name__}"

    def bind(self) -> Make:
        """Gives a function of the number of records alone; here the library is imported."""
        if self.system == "hand":
            return cast(Make, self.function)
        if self.system == "torch":
            import_module("torch.utils.data")
            return cast(Make, self.function)
        if self.system == "grain":
            parse_no_flags()
        return partial(cast(MakeWith, self.function), import_module(self.system))


def parse_no_flags() -> None:
    """Does what `absl.app.run` would do: without it Grain starts no worker processes."""
    from absl import flags

    flags.FLAGS(["benchmarks"])
