"""Notes in states which functions and files made them; warns, or refuses, if they have changed.

A position remains valid if a function is changed or a file rewritten, so a state is not refused for
that. But the user should know, as the following elements differ.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from bushel.core.fingerprint import behaviour_of, digest_of
from bushel.core.naming import name_of
from bushel.core.node import Node, walk
from bushel.errors import ChangedPipelineWarning, StateError
from bushel.files.local import stamp_of
from bushel.files.paths import is_remote

MadeWith = dict[str, Any]
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
# The most functions and files that a state lists by name; for more, it has one digest of all.
_MOST_FUNCTIONS, _MOST_FILES = 32, 8
# The most unopened files whose stamps are taken, evenly spread over all files: if each of a million
# records is a file, taking all stamps would take seconds.
_MOST_LOOKS = 4096


def made_with(node: Node) -> MadeWith:
    """Digests of the functions of a pipeline, and the stamps of its files here.

    Empty if there are none. Each function is digested once, however many parts have it.
    """
    files: list[tuple[str, str | None]] = []
    seen: set[int] = set()
    parts: dict[str, list[str]] = {}
    steps = list(_compared(node))
    for step in steps:
        source = getattr(step, "source", None)
        if source is not None and id(source) not in seen:
            seen.add(id(source))
            files += _files_of(source)
        for name, part in zip(getattr(step, "names", None) or (), step.inputs, strict=False):
            parts.setdefault(name, []).extend(_code_of(walk(part)).values())
    code = _code_of(steps)
    if len(code) > _MOST_FUNCTIONS:
        code = {f"{len(code)} functions": _one([*code, *code.values()])}
    joined = {f"part {name!r}": _one(digests) for name, digests in parts.items() if digests}
    if len(joined) > _MOST_FUNCTIONS:
        # Only of the parts that are in both, as parts may come and go.
        which = digest_of(repr(sorted(joined)))
        joined = {f"{len(joined)} parts, {which}": _one(list(joined.values()))}
    made: MadeWith = {}
    if code or joined:
        made.update(python=_PYTHON, code=code)
    if joined:
        made["parts"] = joined
    stamps = _stamps(files)
    if stamps:
        made["files"] = stamps
    return made


def _code_of(steps: Iterable[Node]) -> dict[str, str]:
    """Digests of the functions of some steps, by step and name."""
    code: dict[str, list[str]] = {}
    seen: set[int] = set()
    for step in steps:
        function = getattr(step, "transform", None) or getattr(step, "batch_fn", None)
        if function is not None and id(function) not in seen:
            seen.add(id(function))
            # (The name of a lambda has a line number, which may change.)
            name = name_of(function).partition(" at ")[0]
            kind = step.describe().partition("(")[0]
            digests = code.setdefault(f"{kind}({name})", [])
            digest = behaviour_of(function)
            if digest not in digests:
                digests.append(digest)
    return {name: _one(digests) for name, digests in code.items()}


def _compared(node: Node) -> Iterator[Node]:
    """The steps that are compared one by one; parts with names are not, as they may come and go."""
    waiting = [node]
    while waiting:
        step = waiting.pop()
        yield step
        if getattr(step, "names", None) is None:
            waiting += reversed(step.inputs)


def _one(digests: list[str]) -> str:
    return digests[0] if len(digests) == 1 else digest_of("\n".join(digests))


def local_files(source: Any) -> list[str]:
    """The paths of a bushel source's files on local disks."""
    if not type(source).__module__.startswith("bushel."):
        return []
    paths = getattr(source, "paths", None) or getattr(source, "_paths", None)
    if not isinstance(paths, (list, tuple)):
        return []
    return [path for path in dict.fromkeys(paths) if isinstance(path, str) and not is_remote(path)]


def _files_of(source: Any) -> Iterable[tuple[str, str | None]]:
    """The local files of a source, with the stamps taken when they were opened.

    The stamp of an opened file is the one that counts, and takes no further system call; remote
    servers are not asked.
    """
    here = local_files(source)
    known: dict[str, str] = source.file_stamps() if here and hasattr(source, "file_stamps") else {}
    return zip(here, map(known.get, here), strict=True)


def _stamps(files: list[tuple[str, str | None]]) -> dict[str, str]:
    """The stamps of files by name, or one digest for many files."""
    unopened = [number for number, (_, stamp) in enumerate(files) if not stamp]
    stride = -(-len(unopened) // _MOST_LOOKS)
    stamps = [stamp for _, stamp in files]
    for number in unopened[:: max(1, stride)]:
        with suppress(OSError, ValueError):  # The file is gone; reading it will raise the error.
            stamps[number] = stamp_of(os.stat(files[number][0]))
    found = list(filter(None, stamps))
    if len(found) <= _MOST_FILES:
        there = zip(files, stamps, strict=True)
        return {os.path.basename(path): stamp for (path, _), stamp in there if stamp}
    name = f"{len(found)} files" if stride <= 1 else f"{len(found)} of {len(files)} files"
    return {name: _one(found)}


def tell_changes(
    saved: Any, now: Callable[[], MadeWith], strict: bool, growth: str | None = None
) -> None:
    """Warns of code and data that changed since a state was saved, or refuses the state.

    `growth` has the old and new length of a source that has grown.
    """
    changes = list(changes_since(saved, now())) if saved is not None else []
    if growth is not None:
        changes.insert(0, growth)
    if not changes:
        return
    what = (
        f"this state was saved with other code or data: {'; '.join(changes)}. Its position is "
        "still valid; the elements after it are made with the code and data of now"
    )
    if strict:
        raise StateError(f"{what}; `strict=True` asks to refuse that.")
    text = f"{what}. (`strict=True` refuses such a state.)"
    warnings.warn(text, ChangedPipelineWarning, stacklevel=_calls_within())


def _calls_within() -> int:
    """The number of stack frames within bushel, so that a warning names the user's line."""
    frame, calls = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__package__", "").startswith("bushel"):
        frame, calls = frame.f_back, calls + 1
    return calls


def changes_since(saved: Any, now: MadeWith) -> Iterator[str]:
    """Lists the changes in code and data since a state, or anything else, was made with them."""
    olds, news = _texts(saved, "code"), _texts(now, "code")
    # Compiled code differs between versions of Python.
    if saved.get("python") == now.get("python"):
        for name in olds.keys() & news.keys():
            if olds[name] != news[name]:
                yield f"the code of `{name}` changed"
        gone, new = sorted(olds.keys() - news.keys()), sorted(news.keys() - olds.keys())
        if gone and new:
            yield f"`{', '.join(gone)}` is `{', '.join(new)}` now"
        olds, news = _texts(saved, "parts"), _texts(now, "parts")
        for name in olds.keys() & news.keys():
            if olds[name] != news[name]:
                yield f"the functions of {name.partition(',')[0]} of a mixture changed"
    olds, news = _texts(saved, "files"), _texts(now, "files")
    for name in olds.keys() & news.keys():
        if olds[name] != news[name]:
            yield f"{name} changed (size and time were {olds[name]}, and are {news[name]})"


def _texts(made: Any, field: str) -> dict[str, str]:
    found = made.get(field, {}) if isinstance(made, dict) else None
    texts = found.values() if isinstance(found, dict) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise StateError(f"what this state says of its code is damaged: {made!r:.200}.")
    return found  # type: ignore[return-value]


def restore_into(iterator: Any, state: Any, strict: bool = False) -> None:
    """Restores a state; a user's own iterator need not have the argument `strict`."""
    iterator.set_state(state, strict=True) if strict else iterator.set_state(state)
