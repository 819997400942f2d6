"""States in folders: a JSON file with a checksum for each process, written atomically."""

import itertools
import json
import os
import re
import stat
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bushel.checkpoint.signed import check_depth
from bushel.core.limits import refusal
from bushel.errors import StateError
from bushel.files.whole import remove_leftovers, written_whole
from bushel.lanes.merge import merge_states

# States are a few hundred bytes. A larger file is no state, and reading it could take the memory
# that training needs.
MAX_BYTES = 64 * 2**20
_SHOWN_NAMES = 8

Folder = str | os.PathLike[str]


def encode(state: object) -> bytes:
    """Turns a state, a dict or JSON in bytes, into indented JSON.

    States of bushel get a checksum, as a damaged digit would be another place in the stream.
    (Grain's states have no field for one.)

    >>> print(encode({"next_index": 3}).decode())
    {
        "next_index": 3
    }
    """
    if isinstance(state, (bytes, bytearray)):
        state = decode(bytes(state), "this state")
    if not isinstance(state, dict):
        raise StateError(
            f"a state is a dict, or JSON in bytes, and this is a {type(state).__name__}: "
            f"{state!r:.200}."
        )
    check_depth(state)
    try:
        text = json.dumps(_with_checksum(state), indent=4).encode()
    except (TypeError, ValueError) as error:
        raise StateError(
            f"this state cannot be written as JSON: {error}. A state is made of dicts with texts "
            f"as keys, lists, texts, numbers, True, False and None: {state!r:.200}."
        ) from error
    if len(text) > MAX_BYTES:
        raise StateError(
            f"this state takes {len(text):,} bytes as JSON, and only {MAX_BYTES:,} are allowed. "
            "A state says where an iterator is; the data belongs elsewhere."
        )
    return text


def decode(text: bytes, what: str) -> dict[str, Any]:
    """Turns JSON into a state, or says what is wrong with `what`.

    >>> decode(b'{"next_index": 3}', "this state")
    {'next_index': 3}
    """
    if len(text) > MAX_BYTES:
        raise StateError(f"{what} has more than {MAX_BYTES:,} bytes, so it is no state.")
    if not text.strip():
        raise StateError(f"{what} is empty, so it is no JSON: {text[:80]!r}.")
    try:
        state = json.loads(text)
    except RecursionError:
        raise StateError(f"{what} is nested too deeply: {text[:80]!r}.") from None
    except ValueError as error:
        raise StateError(
            f"{what} is damaged, or no JSON: {text[:80]!r}. ({error}; it has {len(text):,} bytes.)"
        ) from error
    if not isinstance(state, dict):
        raise StateError(f"{what} is no JSON object: {text[:80]!r}.")
    check_depth(state, what)
    return _without_checksum(state, what)


_CHECKSUM = "checksum"


def _with_checksum(state: dict[str, Any]) -> dict[str, Any]:
    signature = state.get("bushel")
    if not isinstance(signature, dict):
        return state
    return {**state, "bushel": {**signature, _CHECKSUM: _checksum(state)}}


def _without_checksum(state: dict[str, Any], what: str) -> dict[str, Any]:
    """The state without its checksum, or an error if the checksum is wrong."""
    signature = state.get("bushel")
    if not isinstance(signature, dict) or _CHECKSUM not in signature:
        return state
    rest = {name: value for name, value in signature.items() if name != _CHECKSUM}
    bare = {**state, "bushel": rest}
    if signature[_CHECKSUM] != _checksum(bare):
        raise StateError(
            f"{what} is damaged: its values are not those that were saved (their checksum is "
            f"{_checksum(bare)}, and was {signature[_CHECKSUM]!r:.40}). Restore another one. (If "
            f'it was changed on purpose, remove "{_CHECKSUM}" from its "bushel" entry.)'
        )
    return bare


def _checksum(state: dict[str, Any]) -> str:
    """The checksum of the values, whatever their layout in the file."""
    text = json.dumps(state, sort_keys=True, separators=(",", ":"))
    return f"{zlib.crc32(text.encode()):08x}"


def write_encoded(folder: Folder, text: bytes, index: int = 0, count: int = 1) -> None:
    """Writes what `encode` returned."""
    path = _open_folder(folder) / _name(index, count)
    if _is_remote(folder):
        path.write_bytes(text)  # Object stores show a file only once it is complete.
    else:
        _write_whole(path, text)


def read_state(folder: Folder, index: int = 0, count: int = 1) -> dict[str, Any]:
    """Reads the state for process `index` of `count`.

    If another number of processes saved it, all their states are merged: with lanes, any number can
    continue from there.
    """
    name = _name(index, count)
    names = _names_in(folder)
    if name in names:
        return _read(folder, name)
    saved = {other for _, (_, other) in _processes(names)}
    if not saved or saved == {count}:
        raise StateError(_explain_missing(folder, name, names, count))
    states = read_states(folder)
    try:
        return merge_states(states)
    except StateError as error:
        raise StateError(_explain_missing(folder, name, names, count) + f" ({error})") from error


def read_states(folder: Folder) -> list[dict[str, Any]]:
    """Reads the states of all processes in order, however many saved them."""
    names = _names_in(folder)
    found = dict(_processes(names))
    counts = {count for _, count in found.values()}
    if len(counts) != 1:
        if not counts:
            raise StateError(_explain_missing(folder, _name(0, 1), names, 1))
        raise StateError(
            f"{_show(folder)} has states of jobs with different numbers of processes "
            f"({_list(found)}), and nothing says which of them is meant."
        )
    (count,) = counts
    if len(found) != count:
        # Not the list of all: the count comes from a file's name, and may be any number.
        expected = (_name(index, count) for index in itertools.islice(range(count), 1000))
        missing = [name for name in expected if name not in found]
        raise StateError(
            f"{_show(folder)} has states of {len(found)} of {count} processes. Missing: "
            f"{_list(missing)}."
        )
    return [_read(folder, _name(index, count)) for index in range(count)]


def _name(index: int, count: int) -> str:
    # Grain's names, so that either reads the other's files.
    return f"process_{index}-of-{count}.json"


def _processes(names: Iterable[str]) -> Iterable[tuple[str, tuple[int, int]]]:
    """The files of processes: name, index and count of each."""
    for name in names:
        match = re.fullmatch(r"process_(0|[1-9]\d{0,8})-of-([1-9]\d{0,8})\.json", name)
        if match and int(match[1]) < int(match[2]):
            yield name, (int(match[1]), int(match[2]))


def _explain_missing(folder: Folder, name: str, names: list[str], count: int) -> str:
    found = dict(_processes(names))
    other = {saved for _, saved in found.values()} - {count}
    what = f"{_show(folder)} has no {name}"
    if other:
        saved = " or ".join(map(str, sorted(other)))
        return (
            f"{what}: its states were saved by {saved} process{'' if saved == '1' else 'es'} "
            f"({_list(found)}), and there {'is' if count == 1 else 'are'} {count} now. Each state "
            f"belongs to one process, so it takes {saved} to restore them."
        )
    if found:
        return f"{what}. It has those of other processes: {_list(found)}."
    inside = f"It has {_list(names)}." if names else "It is empty."
    return f"{what}, so there is no state of an iterator. {inside}"


def _list(names: Iterable[str]) -> str:
    names = sorted(names, key=lambda name: [int(digits) for digits in re.findall(r"\d+", name)])
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return ", ".join(names[:_SHOWN_NAMES]) + more


def _show(folder: Folder) -> str:
    return os.fspath(folder)


def _is_remote(folder: Folder) -> bool:
    return "://" in os.fspath(folder)


def _open_folder(folder: Folder) -> Any:
    # A path object that is not of this machine has its own methods to read and write.
    return folder if _is_remote(folder) else Path(folder)


def _names_in(folder: Folder) -> list[str]:
    try:
        return sorted(path.name for path in _open_folder(folder).iterdir())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StateError(f"there is no folder {_show(folder)}, so no state either.") from error


def _read(folder: Folder, name: str) -> dict[str, Any]:
    path = _open_folder(folder) / name
    # Opening a pipe of that name would wait for ever.
    if not _is_remote(folder) and not stat.S_ISREG(path.stat().st_mode):
        raise StateError(f"{path} is no file.")
    with path.open("rb") as file:
        text = file.read(MAX_BYTES + 1)
    return decode(text, os.fspath(path))


def _write_whole(path: Path, text: bytes) -> None:
    """Writes a temporary file and renames it: readers find the new file or the previous one."""
    remove_leftovers(os.fspath(path))
    try:
        with written_whole(os.fspath(path)) as file:
            file.write(text)
    except OSError as error:
        said = f"this state cannot be saved: {refusal(error, os.fspath(path))}"
        raise OSError(error.errno, said, os.fspath(path)) from error
