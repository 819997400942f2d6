"""Formats durations and percentages."""


def duration(seconds: float) -> str:
    """A time with its unit.

    >>> duration(4.1e-05), duration(0.0023), duration(1.94), duration(754)
    ('41 us', '2.3 ms', '1.9 s', '13 min')
    """
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= 99.5 * size:
            return f"{seconds / size:.0f} {unit}"
        if seconds >= size:
            return f"{seconds / size:.2g} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def percent(share: float) -> str:
    """A share of one as people write it.

    >>> percent(0.031), percent(0.94), percent(0.0004)
    ('3.1 %', '94 %', '<0.1 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.2g} %" if share < 0.995 else f"{100 * share:.0f} %"
