"""The program that a worker process runs: its start, its tasks, its end with the trainer."""

import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress

from bushel.core.limits import limit_of
from bushel.run.shared_threads import ThreadsOfStreams
from bushel.transport.channel import ChannelClosed
from bushel.transport.link import Link
from bushel.transport.own_classes import remember_classes
from bushel.workers.fragment import Runner, TaskMessage, up_to_unpicklable
from bushel.workers.lifeline import kill_when_closed
from bushel.workers.payload import load, load_first
from bushel.workers.status import Status

# Asks a worker to write its Python stacks to a file; nothing else uses this signal here.
STACK_SIGNAL = signal.SIGUSR2
READY, BROKEN, DONE, FAULT = "ready", "broken", "done", "fault"
# Steps of a worker's start, on its page in place of the number of a step.
PREPARING, LOADING = -2, -3


def main(connection: int, status: int, stacks: int, lifeline: int, index: int, count: int) -> None:
    """Runs tasks until the trainer closes the connection, or is gone."""
    if sys.stderr is not None:
        faulthandler.enable()
    faulthandler.register(STACK_SIGNAL, file=stacks, all_threads=True)
    for descriptor in (connection, status, stacks, lifeline):
        os.set_inheritable(descriptor, False)
    link = Link(socket.socket(fileno=connection))
    # A child that a user's function forks must not hold the socket when this worker is gone.
    os.register_at_fork(after_in_child=link.close)
    page = Status(status)
    os.close(status)
    with suppress(ChannelClosed):
        try:
            _end_with_the_trainer(lifeline)
            page.note(LOADING)
            prepare = load_first(link)
            if prepare is not None:
                page.note(PREPARING)
                prepare(index, count)
                page.note(LOADING)
            threads = ThreadsOfStreams()
            runners = [Runner(fragment, page.note, threads) for fragment in load(link)]
            remember_classes()
            gc.enable()
        except BaseException as error:
            link.send((BROKEN, _told(error)))
            raise
        link.send((READY, None))
        while True:
            message = link.receive()
            if message.given is not None:
                remember_classes()
            _run(link, message, runners, page)


def _run(link: Link, message: TaskMessage, runners: list[Runner], page: Status) -> None:
    page.begin(message.task)
    arena = None
    try:
        arena = link.arena()
        outcome = runners[message.fragment].run(message, arena)
    except Exception as error:
        # Not an exception of a user's function, which would be part of the outcome.
        if arena is not None:
            link.return_arena(arena)
        link.send((FAULT, _told(error)))
        return
    try:
        link.send((DONE, outcome), arena)
    except ChannelClosed:
        raise
    except Exception as error:
        if arena is not None:
            link.return_arena(arena)
        try:
            if limit_of(error) is not None:
                raise
            link.send((DONE, up_to_unpicklable(outcome, error)))
        except ChannelClosed:
            raise
        except Exception as other:
            link.send((FAULT, _told(other)))


def _told(error: BaseException) -> str:
    """The report of an error to the trainer: the traceback, after the limit if one was reached."""
    limit = limit_of(error)
    return f"{limit}.\n{traceback.format_exc()}" if limit else traceback.format_exc()


def _end_with_the_trainer(lifeline: int) -> None:
    """Ends this process when the other end of the pipe is closed, for whatever reason."""

    def wait_for_the_end() -> None:
        with suppress(OSError):
            os.read(lifeline, 1)
        os._exit(1)

    # The system itself ends a process that cannot run a thread any more.
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    kill_when_closed(lifeline, os.getpid())
    threading.Thread(target=wait_for_the_end, name="bushel-lifeline", daemon=True).start()
