"""What another process does with a source, in a module that it imports in no time."""

from typing import Any


def send_records(source: Any, connection: Any) -> None:
    connection.send(list(source))
