"""The web server of `bushel serve`: figures for a browser and for Prometheus."""

import json
import sys
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bushel.watch.html import page, piece
from bushel.watch.live_processes import LiveProcess, found_programs, none_found
from bushel.watch.prometheus import CONTENT_TYPE, Exposition

_HERE = "127.0.0.1"
_REFRESH_SECONDS = 2
# Of a client that says nothing.
_TIMEOUT_SECONDS = 10.0


def serve(program: int | str | None, port: int) -> None:
    """Serves until it is interrupted, and says where."""
    with Server(program, port) as server:
        address = f"http://{_HERE}:{server.server_port}/"
        # At once, as whoever started this may read it through a pipe.
        print(f"{address} and {address}metrics; Ctrl-C ends it", flush=True)
        server.serve_forever()


class Server(ThreadingHTTPServer):
    """Answers on this machine alone; each request looks at the programs anew."""

    daemon_threads = True

    def __init__(self, program: int | str | None, port: int) -> None:
        self._program = program
        self._exposition = Exposition()
        self._lock = threading.Lock()
        self.answers: dict[str, tuple[str, Callable[[], str]]] = {
            "/": ("text/html; charset=utf-8", self._page),
            "/metrics": (CONTENT_TYPE, self._metrics),
            "/stats.json": ("application/json", self._stats),
        }
        try:
            super().__init__((_HERE, port), _Handler)
        except OSError as error:
            raise OSError(
                f"port {port} cannot be served on: {error.strerror}. Another program may have it; "
                "without `--port`, a free one is taken."
            ) from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that has left, or asks again, before it had the answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def _found(self) -> tuple[list[LiveProcess], str]:
        """The programs; and what there is to say where none is found."""
        try:
            found = found_programs(self._program)
        except OSError as error:
            return [], str(error)
        return found, "" if found else str(none_found())

    def _page(self) -> str:
        found, problem = self._found()
        content = "<hr>".join(one._repr_html_() for one in found)
        return page("bushel", content or piece([("nothing to see", problem)]))

    def _metrics(self) -> str:
        with self._lock:  # What was told before is what the next one is compared with.
            return self._exposition.text(self._found()[0])

    def _stats(self) -> str:
        found, problem = self._found()
        told = {"processes": [one.to_dict() for one in found], "problem": problem or None}
        return json.dumps(told, indent=2)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = _TIMEOUT_SECONDS
    server_version = "bushel"
    sys_version = ""

    def do_GET(self) -> None:
        # A page from elsewhere may have its name point to this machine, and read what is here.
        host = self.headers.get("Host", "").rpartition(":")[0]
        answer = self.server.answers.get(self.path.split("?")[0])
        if host not in (_HERE, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN, "this is for the machine itself")
        elif answer is None:
            self.send_error(HTTPStatus.NOT_FOUND, "there are /, /metrics and /stats.json")
        else:
            kind, make = answer
            data = make().encode(errors="backslashreplace")
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            if self.path == "/":
                self.send_header("Refresh", str(_REFRESH_SECONDS))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a line for every scrape helps nobody."""
