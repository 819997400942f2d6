"""Loaders: the elements that Grain's DataLoader gives without workers, and its states."""

import itertools
import json
from typing import Any

import grain
import grain.python
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bushel
from tests.grain.loaders import MEMORYLESS, Loader, Rows, build, loaders
from tests.grain.oracle import Raised, assert_same, blocks_of, events, examples, outcome

block_sizes = st.sampled_from([1, 2, 3, 5, 100])
reads = st.sampled_from([(0, 0), (0, 0), None, (2, 4)])


def _ours(program: Loader, read: Any, ahead: bool) -> Any:
    iterator = iter(build(bushel, program, read))
    if ahead:
        iterator.start_prefetch()
    return iterator


def _events(program: Loader, iterator: Any) -> list[Any]:
    """What happens, up to the first error where Grain does not go on behind it.

    It does behind a map, a filter or a batch that fails. A generator that fails is finished,
    so that its older operations and those of users end there; its flat map repeats elements;
    and a shard without records fails for ever.
    """
    ends = program.uses("flat_map", "own") or "legacy" in program.vias()
    happened: list[Any] = []
    for _ in range(500):
        event = outcome(lambda: next(iterator, _END))
        if event is _END:
            return happened
        happened.append(event)
        if isinstance(event, Raised) and (ends or isinstance(event.error, ZeroDivisionError)):
            return happened
    raise AssertionError("no end after 500 elements")


_END = object()


def _assert_same_events(program: Loader, expected: list[Any], actual: list[Any]) -> None:
    for number, event in enumerate(expected):
        # The older batch of Grain checks structures before it stacks, and refuses a None
        # among numbers, which both stack elsewhere.
        if isinstance(event, Raised) and "Record structures do not match" in str(event.error):
            expected, actual = expected[:number], actual[:number]
            break
    assert_same(expected, actual)


@examples(300)
@given(loaders(), reads, st.booleans(), block_sizes)
def test_elements(program: Loader, read: Any, ahead: bool, size: int) -> None:
    expected = _events(program, iter(build(grain, program)))
    with blocks_of(size):
        _assert_same_events(program, expected, _events(program, _ours(program, read, ahead)))
