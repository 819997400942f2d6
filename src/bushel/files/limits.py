"""What the system refuses, in words: which limit it is, and what to do."""

import errno
import os
import resource


def refusal(error: OSError, path: str) -> str:
    """Says why something failed at a path; the limit by its name, where it is one.

    >>> refusal(OSError(errno.EMFILE, "Too many open files"), "a.txt")
    'this process may have ... files open (`ulimit -n`), and has: raise that limit'
    >>> refusal(PermissionError(errno.EACCES, "Permission denied"), "a.txt")
    'Permission denied'
    """
    if error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process may have {most:,} files open (`ulimit -n`), and has: raise that limit"
    if error.errno == errno.ENFILE:
        return "this machine has as many files open as it may (/proc/sys/fs/file-max)"
    if error.errno == errno.EFBIG:
        most = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
        if most == resource.RLIM_INFINITY:
            return "the file system has no files so large: write to another one"
        return f"this process may write files of {most:,} bytes (`ulimit -f`): raise that limit"
    if error.errno == errno.ENOSPC:
        return f"the disk of {_folder_of(path)!r} is full: make room on it"
    if error.errno == errno.EDQUOT:
        return f"the quota on the disk of {_folder_of(path)!r} is used up: make room on it"
    return error.strerror or str(error)


def _folder_of(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))
