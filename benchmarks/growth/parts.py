"""Parts of a mixture: 4 to 1,000 of them, each shuffled."""

from typing import Any

import numpy as np

from benchmarks.growth.axis import Axis, Variant, streamed

EACH = 100_000_000
BATCH = 32
STEPS_OF_SCHEDULE = 1_000_000


def shuffled(lib: Any, count: int) -> list[Any]:
    ranges = [lib.MapDataset.range(i * EACH, (i + 1) * EACH) for i in range(count)]
    return [part.shuffle(seed=i) for i, part in enumerate(ranges)]


def weights(count: int) -> list[float]:
    return [1.0 + i % 7 for i in range(count)]


def streams(lib: Any, count: int) -> list[Any]:
    return [streamed(lib, part) for part in shuffled(lib, count)]


def mix(lib: Any, count: int, _: Any) -> Any:
    mixed = lib.MapDataset.mix(shuffled(lib, count), weights(count))
    return streamed(lib, mixed).batch(BATCH)


def mix_streams(lib: Any, count: int, _: Any) -> Any:
    return lib.IterDataset.mix(streams(lib, count), weights(count)).batch(BATCH)


def is_odd(x: int) -> bool:
    return x % 2 == 1


def mix_filtered(lib: Any, count: int, _: Any) -> Any:
    parts = [part.filter(is_odd) for part in streams(lib, count)]
    return lib.IterDataset.mix(parts, weights(count)).batch(BATCH)


def scheduled(lib: Any, count: int, _: Any) -> Any:
    ends = (weights(count), weights(count)[::-1])
    schedule = lib.WeightSchedule.linear([(0, ends[0]), (STEPS_OF_SCHEDULE, ends[1])])
    return lib.IterDataset.mix(streams(lib, count), schedule).batch(BATCH)


def all_change(lib: Any, count: int, _: Any) -> Any:
    """Weights of which some change at each step."""
    rng = np.random.default_rng(0)
    ends = [rng.lognormal(0.0, 1.5, count).tolist() for _ in range(2)]
    schedule = lib.WeightSchedule.linear([(0, ends[0]), (STEPS_OF_SCHEDULE, ends[1])])
    return lib.IterDataset.mix(streams(lib, count), schedule).batch(BATCH)


def concatenate(lib: Any, count: int, _: Any) -> Any:
    whole = lib.MapDataset.concatenate(shuffled(lib, count))
    return streamed(lib, whole.shuffle(seed=1)).batch(BATCH)


class InTurn:
    """Says which part, and which element of it, is at a position: all parts in turn."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count * EACH

    def __getitem__(self, index: int) -> tuple[int, int]:
        element, part = divmod(index, self._count)
        return part, element


def select(lib: Any, count: int, _: Any) -> Any:
    whole = lib.MapDataset.select_from_datasets(shuffled(lib, count), InTurn(count))
    return streamed(lib, whole).batch(BATCH)


def zipped(lib: Any, count: int, _: Any) -> Any:
    return streamed(lib, lib.experimental.ZipMapDataset(shuffled(lib, count))).batch(BATCH)


def interleave(lib: Any, count: int, _: Any) -> Any:
    parts = streams(lib, count)
    return lib.experimental.InterleaveIterDataset(parts, cycle_length=count).batch(BATCH)


AXIS = Axis(
    name="parts",
    title="parts of a mixture",
    sizes=(4, 16, 64, 256, 1000),
    variants={
        "mix": Variant("MapDataset.mix", mix),
        "streams": Variant("IterDataset.mix", mix_streams),
        "filtered": Variant("IterDataset.mix, filtered", mix_filtered),
        "scheduled": Variant("scheduled weights", scheduled, grain=False),
        "all_change": Variant("all weights change", all_change, grain=False),
        "concatenate": Variant("concatenate", concatenate),
        "select": Variant("select_from_datasets", select),
        "interleave": Variant("interleave", interleave),
        "zip": Variant("zip", zipped, per_size=True),
    },
)
