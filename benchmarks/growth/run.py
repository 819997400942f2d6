"""Measures points: each in a process of its own, cut short when it takes too long."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

from benchmarks.growth.axis import Axis
from benchmarks.growth.memory import held_bytes

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ("bushel", "grain")
# A pipeline that wants more than that of a machine which others use has failed.
MOST_MEMORY = 6 << 30
MEMORY_LOOK_SECONDS = 0.2
# Ten thousand files are written for a point: where a disk has no say in it, if there is such.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
# To import a library takes a second or two, and longer on a machine that others use.
START_SECONDS = 60.0


@dataclass(slots=True)
class Point:
    """The figures of one size: seconds or bytes by name; `cut` says why some are missing."""

    size: int
    figures: dict[str, float] = field(default_factory=dict)
    cut: str = ""


@dataclass(slots=True)
class Line:
    """One pipeline with one library, over all sizes."""

    axis: str
    variant: str
    title: str
    system: str
    per_size: bool
    points: list[Point] = field(default_factory=list)

    def values(self, what: str) -> list[tuple[int, float]]:
        return [(p.size, p.figures[what]) for p in self.points if what in p.figures]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def line_from_json(data: dict[str, Any]) -> Line:
    return Line(**{**data, "points": [Point(**point) for point in data["points"]]})


def measure(
    axis: Axis, variant: str, system: str, size: int, prepared: Any, seconds: float
) -> Point:
    """Runs one point to its end, or as long as there is patience."""
    command = [sys.executable, "-m", "benchmarks.growth.point", axis.name, variant, str(size)]
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as given:
        given.write(json.dumps(prepared).encode())
        given.seek(0)
        process = subprocess.Popen(
            [*command, system, str(seconds)],
            stdin=given,
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            process_group=0,  # in this session, but to be ended as a whole
        )
        point = Point(size)
        try:
            text, point.cut = watch(process, axis.patience)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for said in text.splitlines():
            point.figures.update(json.loads(said))
        if process.returncode not in (0, -signal.SIGKILL) and not point.cut:
            errors.seek(0)
            words = errors.read().decode(errors="replace").strip().splitlines()
            point.cut = f"failed: {words[-1] if words else process.returncode}"
    return point


def watch(process: "subprocess.Popen[bytes]", patience: float) -> tuple[str, str]:
    """Gives what a point said, and why it was not listened to any longer."""
    assert process.stdout is not None
    pipe, deadline, said = process.stdout.fileno(), monotonic() + START_SECONDS, b""
    with process.stdout:
        while True:
            if select.select([pipe], [], [], MEMORY_LOOK_SECONDS)[0]:
                data = os.read(pipe, 4096)
                if not said:
                    deadline = monotonic() + patience
                said += data
                if not data:
                    return _whole_lines(said), ""
            if process.poll() is not None and not select.select([pipe], [], [], 0)[0]:
                return _whole_lines(said), ""  # Others may still have the pipe.
            if monotonic() > deadline:
                return _whole_lines(said), f"took more than {patience:g} s"
            if held_bytes(process.pid) > MOST_MEMORY:
                return _whole_lines(said), f"took more than {MOST_MEMORY >> 30} GB"


def _whole_lines(said: bytes) -> str:
    return said[: said.rfind(b"\n") + 1].decode()


def grow(
    axis: Axis,
    sizes: tuple[int, ...],
    systems: tuple[str, ...],
    seconds: float,
    rounds: int,
    found_lines: list[Line],
) -> None:
    """Measures one axis, the systems side by side at each size.

    Each line is there from its first point on, for whoever is interrupted. Once a system was
    cut short before its first figure, larger sizes of it are not tried.
    """
    lines: dict[tuple[str, str], Line] = {}
    for name, variant in axis.variants.items():
        for system in systems:
            if system == "bushel" or variant.grain:
                lines[name, system] = Line(axis.name, name, variant.title, system, variant.per_size)
        for size in sizes:
            wanted = [key for key in lines if key[0] == name and not _gave_up(lines[key])]
            print(f"{axis.name}: {variant.title}, {size:,}", file=sys.stderr, flush=True)
            found: dict[tuple[str, str], list[Point]] = {key: [] for key in wanted}
            for _ in range(rounds):
                for key in wanted:
                    with tempfile.TemporaryDirectory("-growth", "bushel-", MEMORY) as folder:
                        prepared = axis.prepare(name, size, folder) if axis.prepare else None
                        point = measure(axis, name, key[1], size, prepared, seconds)
                        found[key].append(point)
            for key in wanted:
                if not lines[key].points:
                    found_lines.append(lines[key])
                lines[key].points.append(_typical(found[key]))


def _gave_up(line: Line) -> bool:
    return bool(line.points) and not line.points[-1].figures


def _typical(points: list[Point]) -> Point:
    names = {name for point in points for name in point.figures}
    figures = {
        name: median(p.figures[name] for p in points if name in p.figures) for name in sorted(names)
    }
    return Point(points[0].size, figures, next((p.cut for p in points if p.cut), ""))
