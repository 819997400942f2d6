"""A state that a pipeline had is one that it accepts, whatever fails, is dropped or begins anew.

A refused state is a lost run. So random pipelines, nested and with failing elements, are stopped at
random places, also after their end and after errors, and go on from there in another iterator.
"""

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from bushel import IterDataset, MapDataset, ReadOptions
from bushel.errors import StateError
from tests.contract.events import freeze, freeze_error
from tests.thorough import examples, fuzz_seed

# So much of a stream is looked at: some have no end, and some errors come again and again.
MOST = 60


class Bang(Exception):
    """An error of a user's own."""


class _Maker:
    """Makes random pipelines, and says how."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def stream(self, depth: int) -> Any:
        ds = self._joined(depth) if depth and self._chance.random() < 0.7 else self._by_position()
        for _ in range(self._chance.randint(0, 3)):
            ds = self._step(ds)
        return ds

    def _by_position(self) -> Any:
        chance = self._chance
        ds: Any = MapDataset.range(chance.choice([0, 1, 2, 5, 9, 13])).seed(3)
        for _ in range(chance.randint(0, 3)):
            step = chance.choice(["map", "map", "filter", "shuffle", "repeat", "slice", "on_error"])
            if step == "map":
                ds = ds.map(self._failing())
            elif step == "filter":
                ds = ds.filter(self._keeping())
            elif step == "shuffle":
                ds = ds.shuffle()
            elif step == "repeat" and len(ds):
                ds = ds.repeat(2, reseed_each_epoch=chance.random() < 0.7)
            elif step == "slice":
                ds = ds[chance.randint(0, 2) :: chance.randint(1, 2)]
            else:
                ds = self._guarded(ds)
        return ds.to_iter_dataset(ReadOptions(0, 0), allow_nones=chance.random() < 0.2)

    def _joined(self, depth: int) -> Any:
        chance = self._chance
        parts = [self.stream(depth - 1) for _ in range(chance.randint(1, 3))]
        if chance.random() < 0.3:
            parts = [parts[0]] * 3  # Alike, so that they are read side by side.
        way = chance.choice(["mix", "mix", "mix", "concatenate", "interleave"])
        if way == "concatenate":
            return IterDataset.concatenate(parts)
        if way == "interleave":
            return parts[0].interleave(*parts[1:], cycle_length=chance.randint(1, 3))
        on_end = chance.choice(["stop", "restart", "drop"])
        named: Any = {f"p{number}": part for number, part in enumerate(parts)}
        ds: Any = IterDataset.mix(named if chance.random() < 0.3 else parts, on_end=on_end)
        # (With an end: a filter after it may drop everything.)
        return ds.take(50) if on_end == "restart" else ds

    def _step(self, ds: Any) -> Any:
        chance = self._chance
        steps = {
            "map": lambda: ds.map(self._failing()),
            "filter": lambda: ds.filter(self._keeping()),
            "flat": lambda: ds.map(lambda x: [x] * (_number(x) % 3)).unbatch(),
            "index": lambda: ds.map_with_index(lambda index, x: x + index % 2),
            "batch": lambda: ds.batch(chance.randint(1, 3), drop_remainder=chance.random() < 0.5),
            "sum": lambda: ds.batch(2, batch_fn=self._failing(_total)),
            "take": lambda: ds.take(chance.randint(0, 20)),
            "skip": lambda: ds.skip(chance.randint(0, 6)),
            "shuffle": lambda: ds.shuffle(chance.randint(1, 6), seed=5),
            "repeat": lambda: ds.repeat(chance.choice([1, 2, 3])),
            "cache": lambda: ds.cache(max_bytes=chance.choice([None, 100])),
            "windows": lambda: ds.windows(chance.randint(1, 3), stride=chance.randint(1, 3)),
            "on_error": lambda: self._guarded(ds),
        }
        return chance.choice(list(steps.values()))()

    def _guarded(self, ds: Any) -> Any:
        budget = self._chance.choice([None, None, 2])
        if self._chance.random() < 0.5:
            return ds.on_error("skip", errors=Bang, budget=budget)
        return ds.on_error("replace", replacement=0, errors=Bang, budget=budget)

    def _failing(self, change: Any = lambda x: x) -> Any:
        every = self._chance.choice([1, 2, 3, 5, 10**6, 10**6])

        def fail(x: Any) -> Any:
            if _number(x) % every == every - 1:
                raise Bang(_number(x))
            return change(x)

        return fail

    def _keeping(self) -> Any:
        of = self._chance.choice([1, 2, 3])
        return lambda x: _number(x) % of == 0


def _number(x: Any) -> int:
    return int(np.sum(x)) if np.size(x) else 0


def _total(rows: Any) -> int:
    return sum(map(_number, rows))


def _taken(iterator: Iterator[Any], most: int) -> list[Any]:
    """What comes next: elements, errors, and the end, after which one may ask again."""
    events: list[Any] = []
    while len(events) < most:
        try:
            events.append(freeze(next(iterator)))
        except StopIteration:
            events.append("the end")
            break
        except Exception as error:
            # (Where it was raised is told as far as that is known: not after a filter, say.)
            kind, name, text, *_ = freeze_error(error)
            events.append((kind, name, re.sub(r"position \d+", "position ...", text)))
    return events


def test_every_state_is_accepted_and_goes_on() -> None:
    accepted = 0
    for seed in range(fuzz_seed(), fuzz_seed() + examples(60)):
        ds = _Maker(seed).stream(2)
        chance = random.Random(seed)
        with iter(ds) as iterator:
            whole = _taken(iterator, MOST)
        # After its end as well, if it has one.
        last = len(whole) - (whole[-1] != "the end")
        stops = {0, last, *chance.choices(range(last + 1), k=3)}
        for stop in sorted(stops):
            with iter(ds) as iterator:
                _taken(iterator, stop)
                state = json.loads(json.dumps(iterator.get_state()))
            with iter(ds) as iterator:
                try:
                    iterator.set_state(state, strict=True)
                except StateError as error:
                    raise AssertionError(f"seed {seed}, {iterator!r} at {stop}: {state}") from error
                expected = whole[stop:] or whole[-1:]
                found = _taken(iterator, len(expected))
                assert found == expected, f"seed {seed}, {iterator!r} at {stop}: {state}"
            accepted += 1
    assert accepted > examples(60)
