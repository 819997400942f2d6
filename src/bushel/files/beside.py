"""Remote reads of a forked process, done by a helper process that was not forked.

    forked process ── thread ─── connection ── thread ── beside.py ── obstore ── store
                   └─ thread ─── connection ── thread ──┘

obstore has threads, which a fork does not copy, so a call in a forked process would wait for ever.
The helper process ends with the forked one.
"""

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

from bushel.files import remote_paths, stores
from bushel.files.stores import Span, Version
from bushel.files.systems import configure, configured, settings


class Asked:
    """The calls that are made on stores, here or in another process."""

    def head(self, path: str) -> Version:
        return stores.head(path)

    def listed(self, path: str, endings: Sequence[str]) -> list[str]:
        return remote_paths.listed(path, endings)

    def fetch(self, path: str, version: Version, spans: Sequence[Span]) -> list[bytes]:
        return [bytes(part) for part in stores.fetch(path, version, spans)]


@cache
def _connections() -> Any:
    """The class of connections: one thread there for each thread here."""
    # A large import, which only a forked process needs.
    from multiprocessing.managers import BaseManager

    class Connections(BaseManager):
        pass

    Connections.register("asked", Asked)
    return Connections


class _ProcessBeside:
    """The helper of this process, as long as the settings stay the same."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.made: dict[int, Any] = {}


_beside = _ProcessBeside()


def _begin() -> None:
    global _beside
    _beside = _ProcessBeside()


os.register_at_fork(after_in_child=_begin)


def asked(path: str) -> Asked:
    """The object to call for a path: in a forked process, one in the helper."""
    if not (stores.lost() and stores.serves(path)):
        return Asked()
    beside, which = _beside, settings()
    with beside.lock:
        if which not in beside.made:
            beside.made[which] = _start()
        answers: Asked = beside.made[which][1]
        return answers


def _start() -> tuple[Any, Any]:
    import secrets

    process = subprocess.Popen(
        [sys.executable, "-c", "from bushel.files.beside import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None and process.stdout is not None
    key = secrets.token_bytes(32)
    # Through a pipe, which no other process can read. It stays open: when it closes, the helper
    # ends.
    pickle.dump((key, configured()), process.stdin)
    process.stdin.flush()
    connections = _connections()(pickle.load(process.stdout), key)
    connections.connect()
    return process, connections.asked()


def serve() -> None:
    """Answers until the forked process is gone."""
    key, options = pickle.load(sys.stdin.buffer)
    configure(options)
    server = _connections()(authkey=key).get_server()
    pickle.dump(server.address, sys.stdout.buffer)
    sys.stdout.flush()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.buffer.read()
    os._exit(0)
