"""What `explain` says of where steps run, against the processes and threads that run them."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bushel import MultiprocessingOptions, ReadOptions
from bushel.core.node import Node, walk, with_inputs
from bushel.core.places import CustomMapNode, CustomStreamNode
from bushel.dataset.stream import StreamNodeDataset, stream_node
from bushel.order.interleave import InterleaveNode
from bushel.sources.read_records import SequenceNode
from bushel.watch.explain import Explaining
from bushel.watch.explanation import ExplainedStep
from tests.contract.events import run_events
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.thorough import THOROUGH
from tests.watch.parts import Noting, NotingSource
from tests.workers.guards import no_endless_wait, no_process_left_behind

__all__ = ["no_endless_wait", "no_process_left_behind"]

# A pipeline for each place in which steps may be, where starting workers takes its time.
WITH_WORKERS = [
    "MapDataset.map",
    "MapDataset.mix: weights",
    "MapDataset.compact: then batch",
    "IterDataset.batch: filtered",
    "IterDataset.on_error",
    "IterDataset.shuffle: filtered",
    "IterDataset.mix: of mixes",
    "IterDataset.mix: restarted",
    "IterDataset.interleave",
    "FlatMapIterDataset: filtered",
    "MapDataset.lanes: packed",
    "ThreadPrefetchIterDataset: in between",
    "IterDataset: subclass in the middle",
    "ZipIterDataset: not strict",
]


class Notes:
    """Puts functions that note where they run in the place of those of a pipeline."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "notes"
        self._count = 0

    def noting(self, node: Node) -> Node:
        """The same pipeline, noted."""
        if isinstance(node, (CustomStreamNode, CustomMapNode)):
            return node  # What it reads from is the user's own business.
        if isinstance(node, InterleaveNode):
            listed = tuple(map(self.noting, node.listed))
            return replace(node, datasets=listed) if listed else node
        made = with_inputs(node, [self.noting(before) for before in node.inputs])
        function = getattr(made, "function", None)
        if callable(function):
            return replace(made, function=self._new(Noting, function))  # type: ignore[type-var]
        if isinstance(made, SequenceNode):
            return replace(made, source=self._new(NotingSource, made.source))
        return made

    def _new(self, kind: type[Noting], function: Any) -> Noting:
        self._count += 1
        return kind(function, self._count, os.fspath(self._path))

    def forget(self) -> None:
        self._path.unlink(missing_ok=True)

    def seen(self) -> dict[int, set[tuple[int, str]]]:
        """The processes and threads in which each of them ran."""
        found: dict[int, set[tuple[int, str]]] = {}
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            number, pid, thread = line.split(" ", 2)
            found.setdefault(int(number), set()).add((int(pid), thread))
        return found


def _explained(node: Node) -> dict[int, ExplainedStep]:
    explaining = Explaining()
    explaining.line(node, None)
    found = {}
    for line in explaining.lines:
        for one in line:
            noting = getattr(one.node, "function", getattr(one.node, "source", None))
            if isinstance(noting, Noting):
                found[noting.number] = one.explained
    return found


def _is_there(step: ExplainedStep, pid: int, thread: str) -> bool:
    if step.place == "workers":
        return pid != os.getpid()
    if pid != os.getpid():
        return False
    if step.threads:
        return True  # It is for the engine to say how many of them, and when.
    return thread == ("bushel-prefetch" if step.place == "thread" else "MainThread")


def _check(build: Callable[[], Any], folder: Path) -> None:
    notes = Notes(folder)
    ds = build()
    node = notes.noting(stream_node(ds))
    for step in walk(node):
        if not step.knows_length:
            step.length()  # The pass that counts elements is made here.
    notes.forget()
    steps = _explained(node)
    run_events(StreamNodeDataset(node, ds.parents))
    seen = notes.seen()
    # Where all is skipped, nothing is read.
    assert not steps or steps.keys() & seen.keys() or not run_events(ds)
    for number, step in steps.items():
        for where in seen.get(number, ()):
            assert _is_there(step, *where), (step, where)


@pytest.mark.parametrize("name", [name for name in PIPELINES if THOROUGH or ":" not in name])
def test_here_and_in_threads(name: str, tmp_path: Path) -> None:
    _check(lambda: stream_of(name, Kit(read=ReadOptions(2, 10))), tmp_path)


@pytest.mark.parametrize("name", PIPELINES if THOROUGH else WITH_WORKERS)
def test_in_workers(name: str, tmp_path: Path) -> None:
    options = MultiprocessingOptions(num_workers=1)
    _check(lambda: stream_of(name, Kit(read=ReadOptions(2, 10))).mp_prefetch(options), tmp_path)
