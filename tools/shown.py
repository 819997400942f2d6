"""Writes what programs print into the pages that show it.

python -m tools.shown              runs the training of docs/live.md, and looks at it
python -m tools.shown --picture    also takes the picture of its page in a browser, docs/live.png

A block that was printed has `<!-- printed by NAME -->` before it, and a program that is run
`<!-- program NAME -->`. Figures are those of the machine on which this was run last; a test holds
the pages to the form of what comes today.
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bushel
from bushel.watch.live_processes import process

DOCS = Path(__file__).parent.parent / "docs"
LIVE, SLOW, BATCH = DOCS / "live.md", DOCS / "slow.md", DOCS / "what-was-in-that-batch.md"
# What it is called in the pages: any number that a process may have.
_PID = "10108"
_METRICS = ("steps_total", "wait_seconds_total", "workers", "node_seconds_total{", "node_records")
# Figures, with what they are figures of.
_FIGURE = re.compile(
    r"~?\b\d[\d,.]*(e-?\d+)?( (ns|us|ms|s|min|h|%|bytes|kB|MB|GB)(?![a-z]))?(/s)?|\b\d[\d.]*k/s"
)
# Lines that are there or not, as the machine has it.
_PERHAPS = ("The longest wait", "in the last", "threads", "changed", "needed", "others")


def program(page: Path, name: str) -> str:
    """The text of a program of a page."""
    return _block(page.read_text(), f"<!-- program {name} -->")[0]


def printed(page: Path, name: str) -> str:
    """What a page shows as printed."""
    return _block(page.read_text(), f"<!-- printed by {name} -->")[0]


def _block(text: str, mark: str) -> tuple[str, int, int]:
    """The text of the block after a mark, and where it begins and ends."""
    start = text.index("\n", text.index("```", text.index(mark))) + 1
    end = text.index("```", start)
    return text[start:end], start, end


def form(text: str) -> list[str]:
    """What of something printed is the same on any machine.

    Of a line of a table, that is its name and where it runs.

    >>> form("map(crop)   workers   1,234   67 us\\n2 workers   7/s\\nwhy slow: no rule says why.")
    ['map(crop) workers', '# workers', 'why slow']
    >>> form("sample: 1 element of 4 bytes") == form("sample: 1,967 elements of 4 bytes")
    True
    """
    lines = []
    for line in text.strip().splitlines():
        name, *columns = re.split("  +", line)
        if not name or line.startswith(_PERHAPS):
            continue  # Sentences go on in lines that begin with blanks.
        if line.startswith("why slow"):
            name, columns = "why slow", []
        elif name.endswith("as written"):
            name = "as written"
        runs = [column for column in columns[:1] if column.isalpha()]
        # A busy machine may have time for one element where a quiet one has thousands.
        name = _FIGURE.sub("#", re.sub(r"\b1 element\b", "1 elements", name))
        lines.append(" ".join([name, *runs]))
    # Sentences may be several.
    return [line for number, line in enumerate(lines) if line not in lines[number - 1 : number]]


class Training:
    """The training of docs/live.md, at work in another process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def top(self) -> str:
        """What `bushel top` prints of it."""
        command = ["top", str(self.pid), "--once"]
        return f"$ bushel top {_PID} --once\n{self._as_shown(_bushel(command))}"

    def metrics(self) -> str:
        """Some of what `bushel serve` has for Prometheus."""
        with self.served() as address, urllib.request.urlopen(f"{address}metrics") as answer:
            lines = answer.read().decode().splitlines()
        told = [line for line in lines if line.startswith("bushel_")]
        chosen = [one for name in _METRICS for one in told if one.startswith(f"bushel_{name}")]
        kept = [line for line in chosen if "node" not in line or "map(crop)" in line]
        return self._as_shown("\n".join(kept) + "\n")

    @contextmanager
    def served(self) -> Iterator[str]:
        """The address of its page while there is one."""
        command = [sys.executable, "-m", "bushel", "serve", str(self.pid), "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                yield server.stdout.readline().split()[0]
            finally:
                server.kill()

    def has_made(self, elements: int) -> bool:
        """Whether it says that it came so far."""
        with contextlib.suppress(ProcessLookupError, IndexError):
            stats = process(self.pid).iterators[0].published.stats
            return bool(stats.steps) and stats.elements >= elements
        return False

    def _as_shown(self, text: str) -> str:
        return text.replace(str(self.pid), _PID)


@contextmanager
def training(elements: int) -> Iterator[Training]:
    """Runs the training of docs/live.md, which has made so many batches when it is handed out."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.py")
        file.write_text(program(LIVE, "train.py"))
        path = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
        surroundings = {**os.environ, "PATH": path}
        command = ["python", "train.py"]
        with subprocess.Popen(command, cwd=folder, env=surroundings) as running:
            try:
                found = Training(running.pid)
                while not found.has_made(elements):
                    if running.poll() is not None:
                        raise RuntimeError(f"{file} has ended with {running.returncode}")
                    time.sleep(0.1)
                yield found
            finally:
                running.kill()


def statistics(elements: int) -> str:
    """What `iterator.stats()` tells of that training, in this process."""
    names: dict[str, object] = {"__name__": "train"}
    exec(compile(program(LIVE, "train.py"), "train.py", "exec"), names)
    dataset: bushel.IterDataset[object] = names["dataset"]  # type: ignore[assignment]
    with bushel.iterate(dataset) as iterator:
        for _ in range(elements):
            next(iterator)
            time.sleep(0.01)
        return f"{iterator.stats()}\n"


def profile(seconds: float) -> str:
    """What `bushel profile` prints of a program of docs/slow.md."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "train.py")
        file.write_text(program(SLOW, "train.py"))
        arguments = ["--pipeline", f"{file}:make", "--step-seconds", "0.02"]
        return _bushel(["profile", *arguments, "--seconds", str(seconds)])


def recorded() -> str:
    """What the commands print of two recorded runs of a program of docs/what-was-in-that-batch.md.

    The runs have no workers, and the program that makes steps again has.
    """
    names: dict[str, Any] = {"__name__": "train"}
    exec(compile(program(BATCH, "train.py"), "train.py", "exec"), names)
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        Path("train.py").write_text(program(BATCH, "train.py"))
        for name in ("monday", "tuesday"):
            path = f"{name}.bushel"
            with bushel.iterate(names["make"](workers=0), record=path, every=100) as iterator:
                for _ in range(250):
                    next(iterator)
        return "\n".join(f"$ bushel {line}\n{_bushel(line.split())}" for line in _OF_RECORDINGS)


_PIPELINE = "--pipeline train.py:make"
_OF_RECORDINGS = (
    f"where monday.bushel --step 230 {_PIPELINE}",
    f"when monday.bushel --key 864949 --replay {_PIPELINE}",
    f"replay monday.bushel --step 200 --save batch.npz {_PIPELINE}",
    "diff monday.bushel tuesday.bushel",
)


@contextmanager
def _inside(folder: str) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _bushel(arguments: Sequence[str]) -> str:
    from bushel.cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if main(list(arguments)):
            raise RuntimeError(f"bushel {' '.join(arguments)} failed")
    return out.getvalue()


def write(page: Path, name: str, text: str) -> None:
    """Puts what was printed into a page."""
    whole = page.read_text()
    _, start, end = _block(whole, f"<!-- printed by {name} -->")
    page.write_text(whole[:start] + text + whole[end:])


def take_picture(address: str, path: Path, size: tuple[int, int] = (760, 450)) -> None:
    """Has a browser draw a page."""
    from PIL import Image

    with tempfile.TemporaryDirectory() as folder:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        options += [f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}"]
        subprocess.run(
            ["chromium", *options, f"--screenshot={path}", address],
            check=True,
            capture_output=True,
            timeout=120,
        )
    with Image.open(path) as drawn:
        few = drawn.convert("RGB").quantize(32)
    few.save(path, optimize=True)


def main(arguments: Sequence[str]) -> None:
    """Runs all of it."""
    shown: dict[tuple[Path, str], Callable[[], str]] = {
        (SLOW, "stats"): lambda: statistics(500),
        (SLOW, "profile"): lambda: profile(5.0),
        (BATCH, "recorded"): recorded,
    }
    with training(elements=400) as running:
        write(LIVE, "top", running.top())
        write(LIVE, "metrics", running.metrics())
        if "--picture" in arguments:
            with running.served() as address:
                take_picture(address, DOCS / "live.png")
    for (page, name), make in shown.items():
        write(page, name, make())


if __name__ == "__main__":
    main(sys.argv[1:])
