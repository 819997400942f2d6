"""Which of the values around a function it changes: its memory, and no part of what it does."""

import functools
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dis import Instruction

# What lists, dicts, sets and deques are changed with.
_CHANGING = frozenset(
    "add append appendleft clear difference_update discard extend extendleft insert "
    "intersection_update pop popitem popleft remove reverse setdefault sort "
    "symmetric_difference_update update".split()
)
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_NAME", "LOAD_CLOSURE")


class Names:
    """Names of variables and attributes; all of them where nobody can tell."""

    def __init__(self, names: frozenset[str], everything: bool = False) -> None:
        self._names, self._everything = names, everything

    def __contains__(self, name: str) -> bool:
        return self._everything or name in self._names

    def __or__(self, other: "Names") -> "Names":
        return Names(self._names | other._names, self._everything or other._everything)


# (A thousand parts of a mixture may have a thousand functions of one code.)
@functools.lru_cache(maxsize=64)
def altered_by(code: CodeType) -> Names:
    """The names that a function sets, and those of things that it changes in place.

    >>> def note(x, seen=[], names=()):
    ...     seen.append(names[x])
    >>> [name in altered_by(note.__code__) for name in ("seen", "names")]
    [True, False]
    """
    import dis  # Few ask.

    steps = list(dis.get_instructions(code))
    found: set[str] = set()
    everything = False
    for number, step in enumerate(steps):
        if step.opname in ("STORE_DEREF", "STORE_ATTR", "DELETE_ATTR"):
            found.add(step.argval)
            continue
        name: str | None = ""
        if step.opname in ("LOAD_METHOD", "LOAD_ATTR") and step.argval in _CHANGING:
            name = _loaded(steps[number - 1])
        elif step.opname in ("STORE_SUBSCR", "DELETE_SUBSCR"):
            name = _container(steps[:number])
        everything = everything or name is None
        found.add(name or "")
    names = Names(frozenset(found), everything)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= altered_by(constant)
    return names


def _loaded(step: "Instruction", from_end: int = 1) -> str | None:
    """What a step loads last, or before that, if it is something with a name."""
    if not step.opname.startswith(_LOADS):
        return None
    # (One step may load two.)
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return str(names[-from_end]) if from_end <= len(names) else None


def _container(steps: Sequence["Instruction"]) -> str | None:
    """What is loaded just before the key."""
    import dis

    loaded = 0
    for number, step in reversed(list(enumerate(steps))):
        loaded += dis.stack_effect(step.opcode, step.arg)
        if loaded == 1:
            return _loaded(steps[number - 1]) if number else None
        if loaded > 1:
            return _loaded(step, loaded)
    return None
