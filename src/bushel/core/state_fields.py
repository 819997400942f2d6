"""Fields of a stream's state: declared beside the stream, checked before a restore, or refused.

    class RepeatStream(OneInput):
        def fields(self) -> Fields:
            return Fields(parent=Inner(self._input), epoch=Whole(most=self._epochs - 1))

`check_state` checks a whole state: first every field by itself, then the relations between fields,
and to the streams below. An error names the place in the state.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeAlias

from bushel.core.state import State
from bushel.errors import StateError, StateRangeError

# Larger numbers are abbreviated in messages: those of a damaged state may have any number of
# digits.
_SHOWN = 10**30
# The most names of a place that a message shows; states may be nested deeply.
_MOST_NAMES = 20


class Declares(Protocol):
    """A stream, as far as its states are concerned."""

    def fields(self) -> "Fields":
        """The fields of its states."""

    def most_before(self, state: State | None) -> int | None:
        """The maximal number of elements before a state; without a state, of the stream."""


Relation: TypeAlias = Callable[[State], str | None]
# A stream below another, its state, and the path of that state in the whole.
_Below: TypeAlias = "tuple[Declares, Any, Path]"


class Path:
    """The path of a field in a state; written out when a message needs it."""

    __slots__ = ("_name", "_outer")

    def __init__(self, outer: "Path | None" = None, name: str = "") -> None:
        self._outer, self._name = outer, name

    def of(self, name: str | int) -> "Path":
        """The path of a field of this name, or of an item of this number."""
        return Path(self, f"[{name}]" if isinstance(name, int) else f".{name}")

    def __str__(self) -> str:
        names: list[str] = []
        place: Path | None = self
        while place is not None and len(names) < _MOST_NAMES:
            names.append(place._name)
            place = place._outer
        more = "" if place is None else "…"
        return more + "".join(reversed(names)).lstrip(".")


class Fields:
    """The fields of a stream's state by their names, and the relations between them.

    Fields that are not declared are ignored, as in Grain. Fields are checked in the order of their
    declaration; a relation is checked once all fields, and the streams below, are right by
    themselves.
    """

    def __init__(self, *relations: Relation, **kinds: "FieldKind") -> None:
        self.relations, self.kinds = relations, kinds

    def check(self, state: Any) -> None:
        """Refuses a state with a wrong field, if there are no streams below."""
        for _ in self.below(state, Path()):
            raise AssertionError("there is a stream below")

    def below(self, state: Any, path: Path) -> Iterator[_Below]:
        """Refuses a state with a wrong field; returns the states of the streams below."""
        if not isinstance(state, dict):
            raise StateError(
                f"a state is a dict, as `get_state()` returned it, and this is a "
                f"{type(state).__name__}{_at(path)}: {state!r:.200}."
            )
        for name, kind in self.kinds.items():
            if name in state:
                yield from kind.below(state[name], name, path.of(name), state)
            elif not kind.optional:
                raise StateError(
                    f"this state has no {name!r}{_at(path)}, so it was made by another pipeline: "
                    f"{state!r:.200}."
                )


class FieldKind(ABC):
    """The values that a field may have."""

    # Whether the field may be missing.
    optional = False

    @abstractmethod
    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        """Refuses a wrong value; returns the states of other streams within it."""

    def relation(self, name: str) -> Relation | None:
        """Checks relations once all fields are right by themselves."""
        return None


class Inner(FieldKind):
    """The state of a stream below."""

    def __init__(self, stream: Declares) -> None:
        self._stream = stream

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        return ((self._stream, value, path),)


class InnerOf(FieldKind):
    """The state of one of several streams below; an earlier field tells which one."""

    def __init__(self, field: str, streams: Sequence[Declares]) -> None:
        self._field, self._streams = field, streams

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        return ((self._streams[state[self._field]], value, path),)


class Whole(FieldKind):
    """A whole number from 0 to `most`, and to the bound `within` from the rest of the state."""

    def __init__(
        self,
        most: int | None = None,
        *,
        within: "Bound | None" = None,
        optional: bool = False,
        or_none: bool = False,
        beyond: str = "",
    ) -> None:
        self.optional, self._or_none = optional, or_none
        self._most, self._limit = most, within
        # The error message for a value that is too large, with `{value}` and `{most}` in it.
        self._beyond = beyond

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        if value is not None or not self._or_none:
            check_whole(value, name, path, self._most, self._beyond)
        return ()

    def relation(self, name: str) -> Relation | None:
        limit = self._limit
        if limit is None:
            return None

        def too_large(state: State) -> str | None:
            value, most = state.get(name), limit.most(state)
            if value is None or most is None or value <= most:
                return None
            return f"{name!r} is {value}, and there are only {most} {limit.what}"

        return too_large


class Bound:
    """The maximum of a field, computed from the state of the stream below."""

    def __init__(self, most: Callable[[State], int | None], what: str) -> None:
        self.most, self.what = most, what


def given_by(
    stream: Declares, field: str = "parent", beyond: Callable[[State], int] = lambda _: 0
) -> Bound:
    """A bound: the number of elements that a stream below has given, plus a constant."""
    what = "elements before this place in what it reads from"

    def most(state: State) -> int | None:
        given = stream.most_before(state[field])
        return None if given is None else given + beyond(state)

    return Bound(most, what)


def all_before(streams: Sequence[Declares], states: Sequence[State | None]) -> int | None:
    """The number of elements that several streams can have given together, if known for all."""
    total = 0
    for stream, state in zip(streams, states, strict=True):
        count = stream.most_before(state)
        if count is None:
            return None
        total += count
    return total


class Wholes(FieldKind):
    """Whole numbers, one for each of several streams: in a list, or by name.

    By name, some may be missing and there may be others, as parts come and go.
    """

    def __init__(
        self,
        count: int,
        names: Sequence[str] | None = None,
        *,
        most: int | None = None,
        of: str = "parts",
        optional: bool = False,
    ) -> None:
        self._count, self._names, self._most = count, names, most
        self._of, self.optional = of, optional

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        for _, number, place in _several(value, name, path, self._count, self._names, self._of):
            check_whole(number, name, place, self._most)
        return ()


class Inners(FieldKind):
    """The states of several streams below, like `Wholes`."""

    def __init__(
        self,
        streams: Sequence[Declares],
        names: Sequence[str] | None = None,
        of: str = "this mixture has {} parts",
    ) -> None:
        self._streams, self._names, self._of = streams, names, of

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        found = _several(value, name, path, len(self._streams), self._names, self._of)
        for number, inner, place in found:
            yield self._streams[number], inner, place


class Flag(FieldKind):
    """True or False, or 1 or 0 as some states have it."""

    def __init__(self, optional: bool = False) -> None:
        self.optional = optional

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        if not is_flag(value):
            raise StateError(
                f"{name!r} in a state{_at(path, name)} must be true or false, and is "
                f"{value!r:.100}."
            )
        return ()


class Opaque(FieldKind):
    """Any value: the state of a user's own iterator, or a value that is checked elsewhere."""

    def below(self, value: Any, name: str, path: "Path", state: State) -> Iterable[_Below]:
        return ()


def is_flag(value: Any) -> bool:
    """Whether this is a bool, or a 0 or 1 in its place."""
    return isinstance(value, int) and value in (0, 1)


def check_whole(
    value: Any, name: str, path: Path, most: int | None = None, beyond: str = ""
) -> None:
    """Refuses a value that is not a whole number from 0 to `most`."""
    largest = sys.maxsize if most is None else most
    if type(value) is int and 0 <= value <= largest:
        return  # A state may have 100,000 of them: paths are written out only when needed.
    where = _at(path, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise StateError(
            f"{name!r} in a state{where} must be a whole number, and is {value!r:.100}."
        )
    if value < 0:
        raise StateRangeError(f"{name!r} in a state{where} must not be negative, and is {value}.")
    if value > largest:
        shown = value if value < _SHOWN else f"a number of {value.bit_length()} bits"
        if beyond:
            raise StateRangeError(beyond.format(value=shown, most=most) + (where and f"{where}."))
        raise StateRangeError(
            f"{name!r} in a state{where} must not exceed {largest}, and is {shown}."
        )


def _several(
    values: Any, name: str, path: Path, count: int, names: Sequence[str] | None, of: str
) -> Iterator[tuple[int, Any, Path]]:
    """The values of several streams: number, value and path of each."""
    if names is not None:
        if not isinstance(values, dict):
            raise StateError(
                f"this mixture has named parts, and {name!r} of the state{_at(path, name)} is "
                f"{values!r:.200}."
            )
        for number, part in enumerate(names):
            if part in values:
                yield number, values[part], path.of(part)
        return
    if not isinstance(values, list) or len(values) != count:
        raise StateError(
            f"{of.format(count)}, and {name!r} of the state{_at(path, name)} is {values!r:.200}."
        )
    for number, value in enumerate(values):
        yield number, value, path.of(number)


def check_state(stream: Declares, state: Any, path: Path | None = None) -> None:
    """Refuses a state that is impossible for a stream and the streams that it reads from."""
    waiting: list[_Below] = [(stream, state, path or Path())]
    looked_at: list[tuple[Fields, State, Path]] = []
    # A loop, as there may be more steps than calls may be nested.
    while waiting:
        stream, state, place = waiting.pop()
        fields = stream.fields()
        waiting += fields.below(state, place)
        looked_at.append((fields, state, place))
    # Now every field is right by itself, and the relations are checked.
    for fields, state, place in reversed(looked_at):
        relations = [kind.relation(name) for name, kind in fields.kinds.items()]
        for relation in (*relations, *fields.relations):
            wrong = relation(state) if relation is not None else None
            if wrong is not None:
                raise StateRangeError(
                    f"this state{_at(place)} does not fit together, so it is damaged or belongs to "
                    f"another pipeline: {wrong}."
                )


def _at(path: Path, name: str = "") -> str:
    """The path in a state, as words of a message; empty if the field's name says it."""
    where = str(path)
    return f" (at {where})" if where and where != name else ""


def check_used(used: int, made: int, what: str) -> None:
    """Refuses a state that counts more elements than were made again for it.

    >>> check_used(3, 2, "a window")
    Traceback (most recent call last):
        ...
    bushel.errors.StateError: this state is after 3 elements of a window, and there are only 2: ...
    """
    if used > made:
        raise StateError(
            f"this state is after {used} elements of {what}, and there are only {made}: it "
            "belongs to other data."
        )


def check_failures(failures: int, missing: int, what: str) -> None:
    """Refuses a state that counts failed elements of which some do not fail when read again."""
    if missing:
        raise StateError(
            f"this state is after {failures} elements that failed in {what}, and {missing} of "
            "them do not: it belongs to other data."
        )
