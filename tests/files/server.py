"""A web server on this machine that knows ranges, and can be told to misbehave."""

import functools
import hashlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from tests.patience import PATIENCE_SECONDS


@functools.lru_cache(maxsize=64)  # Of a large file it takes a while, and each request asks.
def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()[:16]}"'


class Server(ThreadingHTTPServer):
    """Files in memory. Each request for bytes takes the next of the `faults`, if there is one."""

    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: deque[str] = deque()
        # What was asked for: path, first byte, byte after the last.
        self.asked: list[tuple[str, int, int]] = []
        self.heads = 0
        self.knows_ranges = True
        self.has_etags = True
        self.has_dates = False
        # What the header X-Key of a request must say, if anything.
        self.key: str | None = None
        # Held back until it is set; and how many wait for it.
        self.gate = threading.Event()
        self.gate.set()
        self.waiting = threading.Semaphore(0)
        self.lock = threading.Lock()
        self._connections: dict[threading.Thread, socket.socket] = {}

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=True
        )
        self._connections[thread] = request
        thread.start()

    def hang_up(self) -> None:
        """Ends all connections and waits for their threads.

        Clients keep what they have opened for a next request, and with each connection a thread
        here: hundreds after some tests, for whoever counts threads and files next.
        """
        for connection in self._connections.values():
            with suppress(OSError):  # One that has ended.
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._connections:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "an answer has no end"

    def handle_error(self, request: Any, client_address: Any) -> None:
        return  # Connections that were reset on purpose.


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_HEAD(self) -> None:
        with self.server.lock:
            self.server.heads += 1
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, body: bool) -> None:
        if self.server.key not in (None, self.headers.get("X-Key")):
            self._send(403, b"", {}, body)
            return
        fault = self._fault(body)
        if fault == "reset":
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.connection.close()
            self.close_connection = True
            return
        if fault.isdigit():
            self._send(int(fault), b"", {}, body)
            return
        data = self.server.files.get(unquote(self.path).lstrip("/"))
        if data is None:
            self._send(404, b"", {}, body)
            return
        headers = {"Content-Type": "text/html" if self.path.endswith("/") else "text/plain"}
        if self.server.has_dates:
            headers["Last-Modified"] = "Sat, 03 Oct 2026 12:00:00 GMT"
        if self.server.has_etags:
            headers["ETag"] = _tag(data)
        asked = self.headers.get("Range")
        if asked and self.server.knows_ranges:
            first, last = (int(end) for end in asked.removeprefix("bytes=").split("-"))
            if first >= len(data):
                self._send(416, b"", {"Content-Range": f"bytes */{len(data)}"}, body)
                return
            with self.server.lock:
                self.server.asked.append((self.path.lstrip("/"), first, last + 1))
            part = data[first : last + 1]
            headers["Content-Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
            if fault == "short":  # A whole answer, of too few bytes.
                part = part[: len(part) // 2]
            self._send(206, part, headers, body, cut=fault == "cut")
        else:
            self._send(200, data, headers, body)

    def _fault(self, body: bool) -> str:
        if not body or "Range" not in self.headers:
            return ""
        self.server.waiting.release()
        assert self.server.gate.wait(PATIENCE_SECONDS)
        with self.server.lock:
            return self.server.faults.popleft() if self.server.faults else ""

    def _send(
        self, status: int, data: bytes, headers: dict[str, str], body: bool, cut: bool = False
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        return


@contextmanager
def serve() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.gate.set()
            server.shutdown()
            thread.join(PATIENCE_SECONDS)
            server.hang_up()
