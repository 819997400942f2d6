"""The worked examples of CONTRIBUTING.md work."""

import re
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bushel
from bushel.core.frozen import frozen
from bushel.core.naming import name_of
from bushel.core.node import Node, Order
from bushel.core.positions import Positions, join_epochs, split_epochs
from bushel.core.state import State
from bushel.core.step import How, OverOne
from bushel.core.stream import Chunk, OneInput, Stream
from bushel.experimental import assert_equal_output_after_checkpoint

TEXT = (Path(__file__).parent.parent / "CONTRIBUTING.md").read_text()


def _code(name: str) -> dict[str, Any]:
    """What the block of code defines in which a class is."""
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", TEXT, re.S | re.M)
    (code,) = (textwrap.dedent(block) for block in blocks if f"class {name}" in block)
    names: dict[str, Any] = {
        "Any": Any, "Callable": Callable, "Chunk": Chunk, "How": How, "Node": Node,
        "OneInput": OneInput, "Order": Order, "OverOne": OverOne, "Positions": Positions,
        "Sequence": Sequence, "State": State, "Stream": Stream, "__name__": __name__,
        "frozen": frozen, "join_epochs": join_epochs, "name_of": name_of,
        "split_epochs": split_epochs,
    }  # fmt: skip
    exec(code, names)
    return names


def test_an_order() -> None:
    ds = bushel.MapDataset.range(10)
    every = ds._then(_code("EveryNode")["EveryNode"](ds._own_node(), 3))
    assert len(every) == 4
    assert list(every) == [0, 3, 6, 9]
    assert list(every.repeat(2)) == [0, 3, 6, 9] * 2
    assert sorted(every.shuffle(seed=1)) == [0, 3, 6, 9]
    assert_equal_output_after_checkpoint(every.batch(3))


def test_a_step_of_streams() -> None:
    ds = bushel.MapDataset.range(100).to_iter_dataset().filter(lambda x: x % 3 == 0)
    until = ds._then(_code("UntilNode")["UntilNode"](ds._own_node(), lambda x: x > 50))
    assert list(until) == list(range(0, 51, 3))
    assert [part.tolist() for part in until.batch(10)] == [
        list(range(0, 30, 3)),
        list(range(30, 51, 3)),
    ]
    assert_equal_output_after_checkpoint(until)
    assert_equal_output_after_checkpoint(until.batch(4))
    assert_equal_output_after_checkpoint(until.repeat(2))
    workers = bushel.MultiprocessingOptions(num_workers=1)
    assert list(until.map(str).mp_prefetch(workers)) == [str(n) for n in range(0, 51, 3)]
