"""Whether elements are light, by times that are handed in."""

import numpy as np
import pytest

from bushel.run.light_elements import LightElements

PARTS = 100
WHICH = np.arange(PARTS)


def _light_elements(calls: int) -> LightElements:
    light = LightElements(PARTS)
    for _ in range(calls):
        light.learn(WHICH, PARTS, 1e-4)
    return light


@pytest.mark.parametrize("calls", [0, 1, 1000])
@pytest.mark.parametrize("seconds", [1.0, 3600.0])
def test_a_process_that_was_stopped_has_light_elements_still(calls: int, seconds: float) -> None:
    light = _light_elements(calls)
    for _ in range(5):
        light.learn(WHICH, PARTS, seconds)
        assert light.are_light
        for _ in range(100):
            light.learn(WHICH, PARTS, 1e-4)


@pytest.mark.parametrize("calls", [0, 1, 1000])
@pytest.mark.parametrize("seconds", [0.3, 1.0, 10.0])
def test_heavy_elements_are_found_out_by_two_calls(calls: int, seconds: float) -> None:
    light = _light_elements(calls)
    for _ in range(2):
        light.learn(WHICH, PARTS, seconds)
    assert not light.are_light


def test_elements_that_are_a_little_too_heavy_are_found_out_in_time() -> None:
    light = _light_elements(1000)
    for _ in range(1000):
        light.learn(WHICH, PARTS, 4e-3)
    assert not light.are_light


def test_elements_that_take_as_long_as_light_ones_may_are_light_for_good() -> None:
    light = LightElements(PARTS)
    for _ in range(100_000):
        light.learn(WHICH, PARTS, 2e-3)
    assert light.are_light
