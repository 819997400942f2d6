"""A channel between two processes: whole messages, and files, over a socket pair."""

import array
import os
import select
import socket
import struct

_PREFIX = struct.Struct("<II")  # Bytes of the message, and files that come with it.
_MOST_FILES = 4
_AT_A_TIME = 1 << 16
# Never a signal, where the other side is gone, and no waiting.
_AT_ONCE = socket.MSG_DONTWAIT | getattr(socket, "MSG_NOSIGNAL", 0)


class ChannelClosed(Exception):
    """The other side is gone."""


class Channel:
    """Sends and receives whole messages; used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = bytearray()
        self._files: list[int] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes, file: int | None = None) -> None:
        """Sends a message; raises `ChannelClosed` where nobody listens any more.

        While the other side does not read, what it sends is read here: otherwise both might
        wait for the other for ever.
        """
        data = memoryview(_PREFIX.pack(len(message), file is not None) + message)
        rights = []
        if file is not None:
            files = array.array("i", [file]).tobytes()
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
        while data:
            try:
                data = data[self._socket.sendmsg([data], rights, _AT_ONCE) :]
                rights = []
            except BlockingIOError:
                if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                    self._read()
            except OSError as error:
                raise ChannelClosed from error

    def receive(self) -> tuple[bytes, int | None]:
        """Waits for a message and returns it, with the file that came along."""
        while (message := self._next_message()) is None:
            self._read()
        return message

    def has_message(self) -> bool:
        """Whether a whole message is here already."""
        if len(self._received) < _PREFIX.size:
            return False
        length, _ = _PREFIX.unpack_from(self._received)
        return len(self._received) >= _PREFIX.size + int(length)

    def try_read(self) -> bool:
        """Reads what has arrived, without waiting; tells whether a whole message is here."""
        while not self.has_message():
            if not self._wait(select.POLLIN, 0):
                return False
            self._read()
        return True

    def _wait(self, events: int, milliseconds: int | None = None) -> int:
        """Waits until something can be done; not by `select`, which knows 1024 files only."""
        poll = select.poll()
        poll.register(self._socket, events)
        return sum(found for _, found in poll.poll(milliseconds))

    def close(self) -> None:
        self._socket.close()
        for file in self._files:
            os.close(file)
        self._files.clear()

    def _next_message(self) -> tuple[bytes, int | None] | None:
        if not self.has_message():
            return None
        length, count = _PREFIX.unpack_from(self._received)
        end = _PREFIX.size + length
        message = bytes(self._received[_PREFIX.size : end])
        del self._received[:end]
        return message, self._files.pop(0) if count else None

    def _read(self) -> None:
        space = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_AT_A_TIME, space)
        except OSError as error:
            raise ChannelClosed from error
        for level, kind, rights in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files = array.array("i")
                files.frombytes(rights[: len(rights) - len(rights) % files.itemsize])
                self._files.extend(files)
        if not data:
            raise ChannelClosed
        self._received += data
