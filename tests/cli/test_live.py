"""`bushel top` and `bushel serve`, of a training in another process."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bushel.cli.main import main
from bushel.cli.serve import Server
from bushel.watch.live_processes import process
from bushel.watch.prometheus import Exposition, label
from tests.browser import document_of, needs_browser
from tests.workers.processes import wait_until

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="this system has no files in memory to be found"
)

# A step of training that takes a millisecond, for ever.
TRAINING = """
import time
import bushel

def larger(number):
    return number + 1

dataset = bushel.MapDataset.range(10**12).shuffle(seed=1).map(larger).batch(4)
with bushel.iterate(dataset) as iterator:
    next(iterator)
    print("training", flush=True)
    for batch in iterator:
        time.sleep(0.001)
"""


@contextmanager
def started(*arguments: str, **options: Any) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Starts Python; gives the process and the first line that it prints."""
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as program:
        try:
            assert program.stdout is not None
            yield program, program.stdout.readline()
        finally:
            program.kill()


@pytest.fixture(scope="module")
def training() -> Iterator[int]:
    with started("-c", TRAINING) as (program, line):
        assert line == "training\n"
        # The first figures are from before the first element.
        assert wait_until(lambda: process(program.pid).iterators[0].published.stats.steps)
        yield program.pid


Run = Callable[..., Any]


@pytest.fixture
def top(capsys: pytest.CaptureFixture[str]) -> Run:
    """What `bushel top` prints; or what it complains of."""

    def run(*arguments: str | int, fails: bool = False) -> str:
        assert main(["top", *map(str, arguments)]) == fails
        printed = capsys.readouterr()
        return printed.err if fails else printed.out

    return run


def test_why_slow(training: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why-slow", str(training)]) == 0
    first, *sentences = capsys.readouterr().out.splitlines()
    assert first.startswith("iterator 1: your loop waited ")
    assert sentences and all(sentence.startswith("why slow: ") for sentence in sentences)
    assert main(["why-slow", str(os.getppid())]) == 1
    assert "no iterator that publishes figures" in capsys.readouterr().err


def elements(top: Run, pid: int) -> int:
    (told,) = json.loads(top(pid, "--json"))
    assert told["pid"] == pid
    (iterator,) = told["iterators"]
    return int(iterator["stats"]["elements"])


def test_top_shows_a_training_as_it_goes_on(training: int, top: Run) -> None:
    before = elements(top, training)
    assert wait_until(lambda: elements(top, training) > before + 1)
    shown = top(training, "--once")
    assert shown.startswith(f"{training}: {sys.executable}")
    for text in ("iterator 1, ", "map(larger)", "shuffle(seed=1)", "why slow: "):
        assert text in shown
    # Not a terminal: once.
    assert "map(larger)" in top(training)
    assert str(training) in top()


def test_several_programs_are_listed(training: int, top: Run) -> None:
    with started("-c", TRAINING) as (program, line):
        assert line
        listed = top("--once")
    lines = listed.splitlines()
    assert lines[0].split() == ["PID", "iterators", "elements", "command"]
    pids = [int(line.split()[0]) for line in lines[1:] if line[:1] == " " or line[:1].isdigit()]
    assert {training, program.pid} <= set(pids)
    assert "`bushel top PID`" in listed


def test_one_that_is_stopped_shows_its_last_figures_and_one_that_is_killed_is_gone(
    top: Run,
) -> None:
    with started("-c", TRAINING) as (program, line):
        assert line
        program.send_signal(signal.SIGSTOP)
        assert wait_until(lambda: "the process is stopped" in top(program.pid, "--once"))
        stopped = elements(top, program.pid)
        assert elements(top, program.pid) == stopped
        program.send_signal(signal.SIGCONT)
        assert wait_until(lambda: elements(top, program.pid) > stopped)
        program.kill()
        # Nobody has waited for it yet, and it still is no process to look at.
        assert wait_until(lambda: main(["top", str(program.pid), "--json"]) == 1)
        program.wait()
        assert f"there is no process {program.pid}" in top(program.pid, fails=True)


def test_in_a_terminal_it_goes_on_until_the_program_ends(training: int) -> None:
    with started("-c", TRAINING) as (program, line):
        assert line
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [sys.executable, "-m", "bushel", "top", str(program.pid)],
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
        ) as shown:
            os.close(theirs)
            screens = b""
            while screens.count(b"\x1b[H\x1b[J") < 2 or b"map(larger)" not in screens:
                screens += os.read(ours, 1 << 16)
            program.kill()
            # It may still print a screen.
            program.wait()
            _, error = shown.communicate()
            os.close(ours)
    assert shown.returncode == 1 and "there is no process" in error


def test_programs_that_have_nothing_to_show(top: Run) -> None:
    with started("-c", "print(1, flush=True); input()", stdin=subprocess.PIPE) as (program, line):
        assert line
        words = "has no iterator that publishes figures. Iterate with"
        assert words in top(program.pid, fails=True)
    assert "there is no process" in top(2**31 - 1, fails=True)


@pytest.mark.parametrize(
    "arguments", [["top", "x"], ["top", "0"], ["top", "-5"], ["serve", "--port", "70000"]]
)
def test_numbers_that_are_none(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    assert "usage: bushel" in capsys.readouterr().err


def test_programs_of_other_users_cannot_be_looked_at(training: int, top: Run) -> None:
    if os.getuid():
        assert "belongs to another user" in top(1, fails=True)
        return
    child = os.fork()
    if not child:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        try:
            process(training)
        except PermissionError as error:
            os._exit("belongs to another user" in str(error))
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@pytest.fixture(scope="module")
def address(training: int) -> Iterator[str]:
    with started("-m", "bushel", "serve", str(training)) as (_, line):
        found = re.match(r"http://127\.0\.0\.1:\d+/", line)
        assert found is not None, line
        yield found[0]


def fetched(address: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
        data: bytes = answer.read()
    return data.decode()


Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def parsed(text: str) -> tuple[Samples, dict[str, str]]:
    samples: Samples = {}
    kinds: dict[str, str] = {}
    for family in text_string_to_metric_families(text):
        kinds[family.name] = family.type
        for sample in family.samples:
            series = (sample.name, tuple(sorted(sample.labels.items())))
            assert series not in samples
            samples[series] = sample.value
    return samples, kinds


def test_metrics(address: str, training: int) -> None:
    before, kinds = parsed(fetched(f"{address}metrics"))
    own = (("iterator", "1"), ("pid", str(training)))
    steps = ("bushel_steps_total", own)
    assert kinds["bushel_steps"] == kinds["bushel_node_seconds"] == "counter"
    assert kinds["bushel_figures_age_seconds"] == "gauge"
    seen = [before]

    def has_grown() -> bool:
        seen.append(parsed(fetched(f"{address}metrics"))[0])
        return seen[-1][steps] > before[steps] + 1

    assert wait_until(has_grown)
    for earlier, later in pairwise(seen):
        for series, value in earlier.items():
            assert not series[0].endswith("_total") or later[series] >= value, series
    larger = (("name", "map(larger)"), ("node", "2"), ("place", "here"))
    (records,) = (
        value
        for (name, labels), value in seen[-1].items()
        if name == "bushel_node_records_total" and set(larger) <= set(labels)
    )
    assert records >= 4 * seen[-1][steps]


def test_the_page_is_loaded_again_and_runs_nothing(address: str) -> None:
    with urllib.request.urlopen(address) as answer:
        assert int(answer.headers["Refresh"]) > 0
        document: str = answer.read().decode()
    assert "default-src 'none'" in document and "<script" not in document
    assert "http:" not in document and "https:" not in document


def test_figures_as_json(address: str, training: int) -> None:
    told = json.loads(fetched(f"{address}stats.json"))
    assert told["problem"] is None
    assert [one["pid"] for one in told["processes"]] == [training]


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("nothing", {}, 404), ("", {"Host": "elsewhere.example"}, 403)],
)
def test_what_is_not_answered(
    path: str, headers: dict[str, str], status: int, address: str
) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        fetched(f"{address}{path}", **headers)
    with caught.value as error:
        assert error.code == status


@needs_browser
def test_the_page_in_a_browser_grows(address: str, tmp_path: Path) -> None:
    def shown() -> int:
        document = document_of(address, tmp_path)
        assert "map(larger)" in document and "<svg" in document
        found = re.search(r"([\d,]+) elements? in ", document)
        assert found is not None, document
        return int(found[1].replace(",", ""))

    before = shown()
    assert wait_until(lambda: shown() > before)


def test_the_server_tells_that_the_program_has_ended() -> None:
    with started("-c", TRAINING) as (program, line):
        assert line
        with started("-m", "bushel", "serve", str(program.pid)) as (_, said):
            address = said.split()[0]
            assert parsed(fetched(f"{address}metrics"))[0]
            program.kill()
            program.wait()
            assert parsed(fetched(f"{address}metrics")) == ({}, {})
            assert "there is no process" in fetched(address)
            assert "there is no process" in json.loads(fetched(f"{address}stats.json"))["problem"]


def test_counters_do_not_fall_and_labels_tell_no_path(training: int) -> None:
    now = process(training)
    (iterator,) = now.iterators
    stats = iterator.published.stats
    assert stats.steps is not None
    less = [
        replace(step, seconds=step.seconds / 2, name="source('/home/me/secret\".txt')")
        for step in stats.steps
    ]
    exposition = Exposition()

    def told(steps: Any) -> Samples:
        published = replace(iterator.published, stats=replace(stats, steps=tuple(steps)))
        text = exposition.text([replace(now, iterators=(replace(iterator, published=published),))])
        assert "secret" not in text
        return parsed(text)[0]

    named = [replace(step, name=label(step.name)) for step in less]
    more = told([replace(step, seconds=step.seconds * 2) for step in named])
    assert told(less) == more
    assert told([]) != more


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("map(f)", "map(f)"),
        ("cache(path=/x)", "cache"),
        ("/data/x", "step"),
        ("a b@host(x)", "step"),
        ("(waiting for workers)", "(waiting for workers)"),
    ],
)
def test_labels(name: str, expected: str) -> None:
    assert label(name) == expected


def test_a_port_that_is_taken_is_named() -> None:
    with Server(None, 0) as server, pytest.raises(OSError, match="Another program may have it"):
        Server(None, server.server_port)


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_browser_that_has_left_is_no_mistake(
    error: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    with Server(None, 0) as server:
        for raised in (error, ValueError):
            try:
                raise raised("here")
            except Exception:
                server.handle_error(None, ("127.0.0.1", 1))
            assert ("ValueError: here" in capsys.readouterr().err) == (raised is ValueError)
