"""A channel between two processes: whole messages and file descriptors over a socket pair."""

import array
import errno
import os
import select
import socket
import struct
from collections.abc import Sequence

_PREFIX = struct.Struct("<II")  # Bytes of the message, and the number of files that come with it.
_MOST_FILES = 4
_AT_A_TIME = 1 << 16
# Plain numbers: combining members of an enumeration takes microseconds.
_NO_SIGNAL = int(getattr(socket, "MSG_NOSIGNAL", 0))
_NOT_INHERITED = int(getattr(socket, "MSG_CMSG_CLOEXEC", 0))
_NO_WAITING = int(socket.MSG_DONTWAIT)
_FILES_LOST = int(socket.MSG_CTRUNC)
_SPACE_FOR_FILES = socket.CMSG_SPACE(_MOST_FILES * array.array("i").itemsize)


class ChannelClosed(Exception):
    """The other side is gone."""


def send_files(
    connection: socket.socket, data: "bytes | memoryview", files: Sequence[int], flags: int = 0
) -> int:
    """Sends bytes, and open files with the first of them; returns the number of bytes sent."""
    # No signal if the other side is gone.
    flags |= _NO_SIGNAL
    if not files:
        return connection.send(data, flags)
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files).tobytes())]
    return connection.sendmsg([data], rights, flags)


def receive_files(
    connection: socket.socket, size: int, flags: int = 0
) -> tuple[bytes, "array.array[int]"]:
    """Waits for bytes, and files that came with them; no bytes at all mean the end.

    Raises an `OSError` if this process may not open more files: the system then delivers none, or
    some.
    """
    files = array.array("i")
    # A program that another thread starts at this moment must not inherit them.
    flags |= _NOT_INHERITED
    data, ancillary, told, _ = connection.recvmsg(size, _SPACE_FOR_FILES, flags)
    for level, kind, rights in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            files.frombytes(rights[: len(rights) - len(rights) % files.itemsize])
    if told & _FILES_LOST:
        for file in files:
            os.close(file)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
    return data, files


class Channel:
    """Sends and receives whole messages; used by one thread at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._received = bytearray()
        self._files: list[int] = []

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: bytes, file: int | None = None) -> None:
        """Sends a message; raises `ChannelClosed` if the other side is gone.

        If the other side does not read, its messages are read here: otherwise both sides might wait
        for each other for ever.
        """
        files = [] if file is None else [file]
        data = memoryview(_PREFIX.pack(len(message), len(files)) + message)
        while data:
            try:
                data = data[send_files(self._socket, data, files, _NO_WAITING) :]
                files = []
            except BlockingIOError:
                if self._wait_for_either() & select.POLLIN:
                    self._read()
            except OSError as error:
                raise ChannelClosed from error

    def receive(self) -> tuple[bytes, int | None]:
        """Waits for a message and returns it, with the file that came along."""
        while (message := self._next_message()) is None:
            self._read()
        return message

    def has_message(self) -> bool:
        """Whether a whole message has arrived."""
        if len(self._received) < _PREFIX.size:
            return False
        length, _ = _PREFIX.unpack_from(self._received)
        return len(self._received) >= _PREFIX.size + int(length)

    def try_read(self) -> bool:
        """Reads what has arrived, without waiting; returns whether there is a whole message."""
        while not self.has_message():
            try:
                self._read(_NO_WAITING)
            except BlockingIOError:
                return False
        return True

    def _wait_for_either(self) -> int:
        """Waits until it can read or write; not by `select`, which supports only 1024 files."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        return sum(found for _, found in poll.poll())

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

    def _read(self, flags: int = 0) -> None:
        try:
            data, files = receive_files(self._socket, _AT_A_TIME, flags)
        except OSError as error:
            # Nothing has arrived yet, or no file can be opened; the other side still exists.
            if error.errno in (errno.EAGAIN, errno.EMFILE, errno.ENFILE):
                raise
            raise ChannelClosed from error
        self._files.extend(files)
        if not data:
            raise ChannelClosed
        self._received += data
