"""Names of shards: a pattern with a star for the number."""

import re
from collections.abc import Iterable


def shard_name(pattern: str, number: int, count: int | None) -> str:
    """The name of a shard; `count` is None if the number of shards is not known yet.

    >>> shard_name("train-*.tar", 3, 16), shard_name("train-*.tar", 3, None)
    ('train-00003-of-00016.tar', 'train-00003.tar')
    >>> shard_name("one.tar", 0, 1)
    'one.tar'
    """
    of = "" if count is None else f"-of-{count:05d}"
    return pattern.replace("*", f"{number:05d}{of}")


def extra_shards(pattern: str, found: Iterable[str], known: set[str]) -> list[str]:
    """The found files that have names of shards, but are not among the known ones.

    >>> extra_shards("a-*.tar", ["a-00000-of-00002.tar", "a-b.tar", "a-00001.tar"], {"a-00001.tar"})
    ['a-00000-of-00002.tar']
    """
    before, star, after = pattern.partition("*")
    number = r"\d{5,}(-of-\d{5,})?" if star else ""
    name = re.compile(re.escape(before) + number + re.escape(after))
    return sorted(file for file in found if file not in known and name.fullmatch(file))
