"""States with nonsense in them are refused, or lead where the right one does: never elsewhere.

For each pipeline a state is taken somewhere, and one thing in it is changed. `make fuzz` tries
many more of these than a run of the tests does.
"""

import copy
import json
import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from bushel.errors import StateError
from tests.contract.events import events_of, freeze, freeze_error, run_events, states_of
from tests.contract.pipelines import PIPELINES, Kit, stream_of
from tests.thorough import examples, fuzz_seed

# What no field of any of these pipelines can be: another kind of value, or far beyond the data.
NONSENSE: tuple[Any, ...] = (
    None,
    -1,
    -(2**70),
    1_000_001,
    2**31,
    2**62,
    2**63 - 1,
    2**64,
    10**400,
    1.5,
    0.0,
    1.0,
    float("nan"),
    float("inf"),
    "",
    "1",
    "next_index",
    [],
    [1.5],
    [100],
    [[0]],
    {},
    {"next_index": 10**7},
    {"0": 0},
)
# These may be the state of another moment.
PLAUSIBLE: tuple[Any, ...] = (0, 1, 2, 3, 5, 17, True, False, [0], [1, 1])

WAYS = ["nonsense"] * 5 + ["plausible", "near", "missing", "extra", "swapped", "other"]
# How many elements a flat map or `unbatch` makes, only the data knows: a count after one may be
# anything.
UNCOUNTED = {
    "FlatMapIterDataset: filtered",
    "IterDataset.apply",
    "IterDataset.mix: in windows",
    "IterDataset.unbatch: filtered",
    "IterDataset.pack: too long",
    "IterDataset: a long chain",
}

Place = tuple[Any, Any]


def _places(value: Any) -> Iterator[Place]:
    """Everything in a state that could be changed: what it is in, and where."""
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        if key in ("iterator", "weights"):
            continue  # The business of a user's own iterator; and weights may be any others.
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _places(value[key])


def _changed(state: Any, picks: random.Random, others: list[Any]) -> tuple[Any, bool]:
    """A state with one thing changed, and whether that can only be nonsense."""
    state = copy.deepcopy(state)
    if picks.random() < 0.6:
        state.pop("bushel", None)  # Then nothing says which pipeline it is of.
    places = list(_places(state))
    inside, key = picks.choice(places or [({"": 0}, "")])
    way = picks.choice(WAYS)
    if way == "nonsense":
        inside[key] = copy.deepcopy(picks.choice(NONSENSE))
    elif way == "plausible":
        inside[key] = copy.deepcopy(picks.choice(PLAUSIBLE))
    elif way == "near" and type(inside[key]) is int:
        inside[key] += picks.choice([-1, 1])
    elif way == "missing":
        del inside[key]
    elif way == "extra" and isinstance(inside, dict):
        inside[picks.choice(["stop", "failures", "epoch", "x", "parent", "cache_filled"])] = 0
    elif way == "swapped":
        elsewhere, other = picks.choice(list(_places(state)))
        inside[key], elsewhere[other] = elsewhere[other], copy.deepcopy(inside[key])
    else:
        inside[key] = copy.deepcopy(picks.choice(others))
    return state, way == "nonsense"


def _others() -> list[Any]:
    """States of some other pipelines, and parts of them."""
    found: list[Any] = []
    for name in ("IterDataset.shuffle", "IterDataset.mix: scheduled", "InterleaveIterDataset"):
        state = states_of(stream_of(name, Kit()))[3]
        found += [state, *(inside[key] for inside, key in _places(state))]
    return found


OTHERS = _others()


REFUSALS = {"StateError", "StateRangeError"}


def _rest(iterator: Any) -> list[Any] | None:
    """What comes, up to an error that says that the state does not fit; None if it is too much."""
    found: list[Any] = []
    while len(found) < 300:
        try:
            found.append(freeze(next(iterator)))
        except StopIteration:
            return found
        except StateError as error:
            return [*found, freeze_error(error)]
        except Exception as error:
            found.append(freeze_error(error))
    return None


@pytest.mark.filterwarnings("ignore::bushel.errors.ChangedPipelineWarning")
@pytest.mark.parametrize("name", PIPELINES)
def test_a_changed_state(name: str) -> None:
    ds = stream_of(name, Kit())
    everything, states = run_events(ds), states_of(ds)
    own_errors = {what[1] for what, _ in everything if what[0] == "error"}
    for number in range(examples(4)):
        seed = f"{fuzz_seed()}/{name}/{number}"
        picks = random.Random(seed)
        start = picks.randrange(len(states))
        state, is_nonsense = _changed(states[start], picks, OTHERS)
        told = f"seed {seed}: {json.dumps(state)[:2000]}, of {json.dumps(states[start])[:2000]}"
        with iter(ds) as iterator:
            with suppress(Exception):
                next(iterator, None)
            before = iterator.get_state()
            try:
                iterator.set_state(state)
            except StateError:
                assert iterator.get_state() == before, f"it moved; {told}"
                assert events_of(iterator) == everything[1:], f"it goes on elsewhere; {told}"
                continue
            except Exception as error:
                raise AssertionError(f"{error!r}; {told}") from error
            rest = _rest(iterator)
        is_nonsense = is_nonsense and name not in UNCOUNTED
        assert rest is not None or not is_nonsense, f"it does not end; {told}"
        if rest is None or rest == [what for what, _ in everything[start:]]:
            continue
        errors = {what[1] for what in rest if what[0] == "error"}
        # (Inputs of a zip that are at other places do not end together, which it says.)
        known = own_errors | REFUSALS | (set() if is_nonsense else {"PlanError"})
        assert errors <= known, f"{errors}; {told}"
        assert errors & REFUSALS or not is_nonsense, f"another stream; {told}"
