"""Which values a function changes: those are left out of its digest (`core/fingerprint.py`).

A list or dict that a function passes on may be changed by the function that receives it. So a
mutable value counts only if it is nothing but read.
"""

import functools
from collections.abc import Sequence
from types import CodeType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dis import Instruction

# Methods that change lists, dicts, sets and deques.
_CHANGING = frozenset(
    "add append appendleft clear difference_update discard extend extendleft insert "
    "intersection_update pop popitem popleft remove reverse setdefault sort "
    "symmetric_difference_update update".split()
)
_LOADS = ("LOAD_FAST", "LOAD_DEREF", "LOAD_GLOBAL", "LOAD_ATTR", "LOAD_NAME", "LOAD_CLOSURE")


class Names:
    """Names of variables and attributes, or every name if the names cannot be found out."""

    def __init__(self, names: frozenset[str], everything: bool = False) -> None:
        self._names, self._everything = names, everything

    def __contains__(self, name: str) -> bool:
        return self._everything or name in self._names

    def __or__(self, other: "Names") -> "Names":
        return Names(self._names | other._names, self._everything or other._everything)


# (A thousand parts of a mixture may have a thousand functions of one code.)
@functools.lru_cache(maxsize=64)
def altered_by(code: CodeType) -> Names:
    """Names that a function assigns, and names of objects that it changes in place.

    >>> def note(x, seen=[], names=()):
    ...     seen.append(names[x])
    >>> [name in altered_by(note.__code__) for name in ("seen", "names")]
    [True, False]
    """
    import dis  # Rarely needed.

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


# Methods that read lists, dicts and sets without changing them.
_READING = frozenset(
    "copy count get index intersection isdisjoint issubset issuperset items keys union "
    "values".split()
)
_READERS = frozenset(
    "all any dict enumerate frozenset len list map max min range repr reversed set sorted str sum "
    "tuple zip".split()
)
# Instructions that compute something from the top one or two values of the stack, and change
# neither.
_LOOKING = ("BINARY_SUBSCR", "BINARY_SLICE", "CONTAINS_OP", "COMPARE_OP", "IS_OP", "GET_ITER")
_UNPACKING = ("DICT_UPDATE", "DICT_MERGE", "LIST_EXTEND", "SET_UPDATE", "TO_BOOL", "UNARY_NOT")


@functools.lru_cache(maxsize=256)
def only_reads(code: CodeType, name: str) -> bool:
    """Whether a function does nothing with the value of a name but look things up in it.

    >>> def label(x, names={}, seen=[]):
    ...     note(seen, x)
    ...     return names[x["label"]]
    >>> only_reads(label.__code__, "names"), only_reads(label.__code__, "seen")
    (True, False)
    """
    import dis

    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
        if name not in names or step.opname in ("LOAD_CLOSURE", "MAKE_CELL", "LOAD_CONST"):
            continue
        if not step.opname.startswith(_LOADS):
            return False
        if not _is_looked_at(steps, number, len(names) - names.index(name)):
            return False
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return all(only_reads(constant, name) for constant in inner)


def _is_looked_at(steps: Sequence["Instruction"], number: int, depth: int) -> bool:
    """Whether the value that instruction `number` loads is only read.

    `depth - 1` values are above it on the stack.
    """
    import dis

    for step in steps[number + 1 :]:
        if depth == 1 and step.opname.startswith(("LOAD_ATTR", "LOAD_METHOD")):
            return step.argval in _READING
        if depth == 1 and step.opname in ("PRECALL", "CALL"):
            before = steps[number - 1]
            return step.arg == 1 and before.opname == "LOAD_GLOBAL" and before.argval in _READERS
        effect = dis.stack_effect(step.opcode, step.arg, jump=False)
        if depth + effect < 2 and not (depth == 1 and effect > 0):
            looks = step.opname in (*_LOOKING, *_UNPACKING)
            return looks or step.opname.startswith("POP_JUMP")
        if step.opcode in dis.hasjrel or step.opcode in dis.hasjabs:
            return False  # The jump may lead anywhere.
        depth += effect
    return False


@functools.lru_cache(maxsize=256)
def attributes_set(code: CodeType) -> frozenset[str]:
    """The attributes, of whatever object, that a function sets."""
    import dis

    found = {
        step.argval
        for step in dis.get_instructions(code)
        if step.opname in ("STORE_ATTR", "DELETE_ATTR")
    }
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(found).union(*map(attributes_set, inner))


def _loaded(step: "Instruction", from_end: int = 1) -> str | None:
    """The `from_end`-th last name that an instruction loads; None if it loads none."""
    if not step.opname.startswith(_LOADS):
        return None
    # (One instruction may load two.)
    names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
    return str(names[-from_end]) if from_end <= len(names) else None


def _container(steps: Sequence["Instruction"]) -> str | None:
    """The name of the container that is loaded just before the key."""
    import dis

    loaded = 0
    for number, step in reversed(list(enumerate(steps))):
        loaded += dis.stack_effect(step.opcode, step.arg)
        if loaded == 1:
            return _loaded(steps[number - 1]) if number else None
        if loaded > 1:
            return _loaded(step, loaded)
    return None
