"""The time that an import takes beyond numpy, which all of them need."""

import subprocess
import sys
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from types import ModuleType

from benchmarks import proof
from benchmarks.workload import MILLISECONDS, Form, Goal, Make, Unit, Workload

# The loader is looked up as well, so that a library cannot win by putting off the work.
PROGRAM = """
import importlib, numpy, time
start = time.perf_counter()
name = importlib.import_module({module!r}).DataLoader.__name__
print(time.perf_counter() - start, name)
"""


@dataclass(frozen=True, slots=True)
class ImportTime:
    """Measures imports of a module in new interpreters, which have imported nothing but numpy."""

    @property
    def unit(self) -> Unit:
        return MILLISECONDS

    @property
    def fresh_process(self) -> bool:
        return False

    def prove(self, make: Make) -> proof.Proof:
        _, name = imported(make(0))
        return proof.Proof(total=name, order=name)

    def read(self, make: Make, seconds: float) -> float:
        times: list[float] = []
        start = perf_counter()
        while not times or perf_counter() - start < seconds:
            times.append(imported(make(0))[0])
        return median(times) * 1000


def imported(module: str) -> tuple[float, str]:
    """Gives the time of one import in seconds, and what was found in the module."""
    program = PROGRAM.format(module=module)
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    spent, name = output.split()
    return float(spent), name


def library(lib: ModuleType, _: int) -> str:
    return lib.__name__


def with_torch(_: int) -> str:
    return "torch.utils.data"


WORKLOAD = Workload(
    name="import_time",
    title="import, beyond numpy's own",
    gauge=ImportTime(),
    torch=with_torch,
    forms=(Form("", library, Goal(150.0)),),
)
