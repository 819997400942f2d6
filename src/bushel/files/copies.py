"""Files that are made once of another file, and kept in the cache folder.

They are for what cannot be read where it lies: files far away that have to be in memory as they
are, and compressed ones. There is one for each file, named for the file and its stamp. It is
there as a whole or not at all, and one process makes it while the others wait.
"""

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from bushel.errors import FileError
from bushel.files.index import cache_folder
from bushel.files.limits import refusal
from bushel.files.local import ByteFile, stamp_of
from bushel.files.paths import is_remote, without_query
from bushel.files.progress import Progress
from bushel.files.whole import alone, written_whole

if TYPE_CHECKING:
    from bushel.files.remote import RemoteFile

_log = logging.getLogger("bushel")

_CHUNK = 1 << 25
_LOCK = ".lock"


def made_once(
    file: ByteFile, folder: str, name: str, why: str, pieces: Callable[[], Iterable[bytes]]
) -> str:
    """The path of what is made of a file: the one that is kept, or a new one.

    Args:
        file: what it is made of.
        folder: where such things are kept, in the cache folder.
        name: what it is called, after its stamp: messages name it now and then.
        why: completes "the file ..., so ...".
        pieces: its contents, if it has to be made.
    """

    import hashlib  # It loads a library of cryptography.

    path = file.path if is_remote(file.path) else os.path.abspath(file.path)
    # Nobody but the user puts records there.
    own = os.path.join(cache_folder(), f"{folder}-{os.geteuid()}")
    of_file = os.path.join(own, hashlib.sha256(os.fsencode(path)).hexdigest())
    stamp = hashlib.sha256(file.stamp.encode()).hexdigest()[:16]
    target = os.path.join(of_file, f"{stamp}-{name}")
    if os.path.exists(target):
        return target
    try:
        os.makedirs(own, mode=0o700, exist_ok=True)
        os.makedirs(of_file, exist_ok=True)
        with alone(os.path.join(of_file, _LOCK)):
            if not os.path.exists(target):  # Somebody else may have made it meanwhile.
                _log.warning(
                    "%r %s to %r, which takes time and room on the disk; the copy stays until you "
                    "remove it.",
                    file.path,
                    why,
                    target,
                )
                _make(target, pieces())
    except FileError:
        raise
    except OSError as error:
        raise FileError(
            f"{file.path!r} {why} to {of_file!r}, and that fails: {refusal(error, of_file)}. "
            "Do it yourself, or name another folder in the environment variable BUSHEL_CACHE."
        ) from error
    return target


def _make(target: str, pieces: Iterable[bytes]) -> None:
    folder = os.path.dirname(target)
    # Those of what the file was before, and what a process left that was killed. Whoever has
    # one open keeps it.
    for other in os.listdir(folder):
        if other != _LOCK:
            with suppress(OSError):
                os.unlink(os.path.join(folder, other))
    with written_whole(target) as out:
        for piece in pieces:
            out.write(piece)


def stamp_here(path: str, local: str, status: os.stat_result) -> str:
    """Something that is another when a file is, which `local_path` says is at `local`.

    Each machine has a copy of its own; the name of one is made of the stamp of what was copied.
    """
    return stamp_of(status) if local == path else os.path.basename(local)


def local_path(path: str) -> str:
    """Where a file is on this machine: where it lies, or a copy of it if that is far away.

    >>> local_path("data/a.npy")
    'data/a.npy'
    """
    if not is_remote(path):
        return path
    from bushel.files.remote import RemoteFile

    file = RemoteFile(path)
    if file.stamp == f"{file.size}-":
        raise FileError(
            f"{path!r} has to be copied to this machine, and the server does not say when it was "
            "changed, so that an old copy could not be told from a new one. Copy it yourself."
        )
    why = "is far away, and is read as a whole. So it is copied once,"
    # Some packages read more into names.
    name = re.sub(r"[^\w.-]", "_", os.path.basename(without_query(path)))[-100:]
    return made_once(file, "copies", name, why, lambda: _whole(file))


def _whole(file: "RemoteFile") -> Iterator[bytes]:
    with Progress(f"copying {os.path.basename(file.path)}", file.size) as progress:
        for start in range(0, file.size, _CHUNK):
            progress.to(start)
            yield file.read_once(start, min(start + _CHUNK, file.size))
