"""Words the difference between two descriptions of a pipeline, step by step."""

from collections.abc import Iterator, Sequence
from itertools import zip_longest

_OPENING, _CLOSING = "([{", ")]}"
# Steps up to this length are shown whole; of longer ones, only the parts that differ.
_LONG = 80
_AROUND = 60
# More steps than any pipeline has. A state may say anything, and comparing takes the square of its
# steps.
_MOST_STEPS = 1000
_SHOWN = 20


def differing_steps(saved: Sequence[str], current: Sequence[str], word: str = "step") -> str:
    """Lists the steps that were changed, removed and inserted, with their numbers in `saved`.

    >>> differing_steps(["range(9)", "map", "batch(2)"], ["range(9)", "batch(4)"])
    'step 2 (`map`) is gone; step 3 was `batch(2)` and is `batch(4)` now'
    """
    if len(saved) > max(_MOST_STEPS, len(current)):
        return f"it had {len(saved)} {word}s and has {len(current)} now"
    texts: list[str] = []
    for start, olds, news in _regions(saved, current):
        number = start
        fresh: list[str] = []
        for old, new in _pairs(olds, news):
            if old is None:
                assert new is not None
                fresh.append(new)
                continue
            if fresh:
                texts.append(_show_fresh(fresh, saved, number, word))
                fresh = []
            number += 1
            where = f"{word} {number}"
            if new is None:
                texts.append(f"{where} ({_quote(old)}) is gone")
            else:
                texts.append(f"{where} {_show_change(old.strip(), new.strip())}")
        if fresh:
            texts.append(_show_fresh(fresh, saved, number, word))
    more = [f"and {len(texts) - _SHOWN} differences more"] if len(texts) > _SHOWN else []
    return "; ".join(texts[:_SHOWN] + more)


def _show_fresh(steps: list[str], saved: Sequence[str], number: int, word: str) -> str:
    names = ", ".join(map(_quote, steps[:_SHOWN]))
    if len(steps) > _SHOWN:
        names += f" and {len(steps) - _SHOWN:,} more"
    verb = "is" if len(steps) == 1 else "are"
    if number:
        return f"{names} {verb} new, after {word} {number} ({_quote(saved[number - 1])})"
    return f"{names} {verb} new" + (f", before {word} 1 ({_quote(saved[0])})" if saved else "")


def _quote(step: str) -> str:
    return f"`{_clip(step.strip(), 0)}`"


def _regions(
    saved: Sequence[str], current: Sequence[str]
) -> Iterator[tuple[int, Sequence[str], Sequence[str]]]:
    """The ranges between equal steps: start, and both versions."""
    for tag, i, j, k, m in _opcodes(saved, current):
        if tag != "equal":
            yield i, saved[i:j], current[k:m]


def _pairs(
    olds: Sequence[str], news: Sequence[str]
) -> Iterator[tuple[str, str] | tuple[str, None] | tuple[None, str]]:
    """Pairs steps of the same kind."""
    for _, i, j, k, m in _opcodes(list(map(_kind, olds)), list(map(_kind, news))):
        yield from zip_longest(olds[i:j], news[k:m])


def _opcodes(saved: Sequence[str], current: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    from difflib import SequenceMatcher  # Not needed if states fit.

    return list(SequenceMatcher(None, saved, current, False).get_opcodes())


def _kind(step: str) -> str:
    return step.partition("(")[0]


def differing_fields(old: str, new: str) -> str | None:
    """Says which parameters of two texts like `Name(a=1, b=Other(c=2))` differ, by name.

    None if the texts do not have this form, or have another class or other parameters.

    >>> differing_fields("Step(seed=1, shard=Part(0, of=2))", "Step(seed=3, shard=Part(0, of=4))")
    'seed was 1 and is 3 now, shard.of was 2 and is 4 now'
    """
    found = _fields(old, new, "")
    return None if found is None else ", ".join(found)


def _fields(old: str, new: str, path: str) -> list[str] | None:
    olds, news = _arguments(old), _arguments(new)
    if olds is None or news is None or _kind(old) != _kind(new) or olds.keys() != news.keys():
        return None
    found: list[str] = []
    for name, before in olds.items():
        now = news[name]
        if before != now:
            where = f"{path}.{name}" if path else name
            found += _fields(before, now, where) or [f"{where} {_show_values(before, now)}"]
    return found or None


def _arguments(text: str) -> dict[str, str] | None:
    """The arguments of a printed call, by name or by number.

    >>> _arguments("Name(1, b='x, y', c=[2, 3])")
    {'argument 1': '1', 'b': "'x, y'", 'c': '[2, 3]'}
    """
    name, bracket, rest = text.partition("(")
    if not bracket or not rest.endswith(")") or not name.replace(".", "_").isidentifier():
        return None
    parts = _split(rest[:-1])
    if parts is None:
        return None
    arguments = {}
    for number, part in enumerate(parts, start=1):
        field, equals, value = part.partition("=")
        if equals and field.isidentifier():
            arguments[field] = value
        else:
            arguments[f"argument {number}"] = part
    return arguments


def _split(text: str) -> list[str] | None:
    r"""Splits at commas outside of brackets and quotes.

    >>> _split(r"'it\'s, so', (1, 2), x")
    ["'it\\'s, so'", '(1, 2)', 'x']
    """
    parts, start, depth, quote = [], 0, 0, ""
    for place, letter in enumerate(text):
        if quote:
            if letter == quote and text[place - 1] != "\\":
                quote = ""
        elif letter in "'\"":
            quote = letter
        elif letter in _OPENING:
            depth += 1
        elif letter in _CLOSING:
            depth -= 1
            if depth < 0:
                return None
        elif letter == "," and not depth:
            parts.append(text[start:place].strip())
            start = place + 1
    if quote or depth:
        return None
    return [*parts, text[start:].strip()] if text.strip() else []


def _show_change(old: str, new: str) -> str:
    if max(len(old), len(new)) > _LONG:
        fields = differing_fields(old, new)
        if fields is not None:
            return f"is another `{_kind(new)}`: {fields}"
    return _show_values(f"`{old}`", f"`{new}`")


def _show_values(old: str, new: str) -> str:
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    return f"was {_clip(old, same)} and is {_clip(new, same)} now"


def _clip(text: str, place: int) -> str:
    """Cuts a long text down to the surroundings of a place."""
    if len(text) <= 4 * _AROUND:
        return text
    start = max(0, place - _AROUND)
    stop = max(start, place) + 2 * _AROUND
    return ("…" if start else "") + text[start:stop] + ("…" if stop < len(text) else "")
