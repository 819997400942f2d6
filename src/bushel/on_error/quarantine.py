"""`quarantine=`: the file that lists bad records."""

import os
import threading

from bushel.errors import FileError
from bushel.on_error.bad_records import BadRecord


class Quarantine:
    """A file of JSON lines, one for each bad record, without repetitions."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._known: set[str] = set()
        try:
            with open(path, encoding="utf-8") as file:
                self._known = {line.rstrip("\n") for line in file}
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as error:
            raise FileError(f"the quarantine file {path!r} cannot be read: {error}.") from None

    def add(self, record: BadRecord) -> None:
        """Writes a line, unless it is there: after a restore a record may come again."""
        import json

        line = json.dumps(record.line(), default=repr)
        with self._lock:
            if self._known and not os.path.exists(self._path):
                self._known.clear()  # The file was removed, and a new one is begun.
            if line in self._known:
                return
            try:
                # One write of one line at the end, so that lines of several processes do not mix.
                descriptor = os.open(
                    self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644
                )
                try:
                    os.write(descriptor, (line + "\n").encode())
                finally:
                    os.close(descriptor)
            except OSError as error:
                raise FileError(
                    f"the quarantine file {self._path!r} cannot be written: {error.strerror}."
                ) from None
            self._known.add(line)


_quarantines: dict[str, Quarantine] = {}


def quarantine(path: str) -> Quarantine:
    """The quarantine file of a path, one for all streams of this process."""
    whole = os.path.abspath(path)
    found = _quarantines.get(whole)
    if found is None:
        found = _quarantines.setdefault(whole, Quarantine(whole))
    return found
