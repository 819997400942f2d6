"""Draws the pictures of the documentation.

python -m tools.pictures          writes docs/pictures/*.svg; a test holds them to this program

What they show is computed by bushel and not by hand: orders, shares and where steps run. A
picture has no background, and turns light or dark with the page that it is on.
"""

import itertools
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

import bushel

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"

_STYLE = """
  svg { font: 13px system-ui, sans-serif; fill: #3b3431 }
  .box { fill: #fff; stroke: #8d7b74 } .field { fill: #f3eeea; stroke: none }
  .small { font-size: 11px; fill: #6f625c } .title { font-weight: 600 }
  .code { font-family: ui-monospace, monospace; font-size: 12px }
  .arrow { stroke: #6f625c; fill: none; stroke-width: 1.4 } .tip { fill: #6f625c }
  .cut { stroke: #b3261e; stroke-width: 1.6; stroke-dasharray: 5 4; fill: none }
  .warn { fill: #b3261e }
  .dot { fill: #9a5b13 } .gone { opacity: 0.25 }
  .c0 { fill: #f4c27a } .c1 { fill: #a9c98b } .c2 { fill: #8fb8d9 } .c3 { fill: #d9a7c4 }
  .c4 { fill: #e8a08a } .c5 { fill: #b6b0e0 } .c6 { fill: #8ccdc0 } .c7 { fill: #d6c98a }
  .on { fill: #2d2522 }
  @media (prefers-color-scheme: dark) {
    svg { fill: #e4ddd8 }
    .box { fill: #2b2724; stroke: #a08f86 } .field { fill: #2a2b33 }
    .small { fill: #b3a69e } .arrow { stroke: #b3a69e } .tip { fill: #b3a69e }
    .cut { stroke: #ff8a80 } .warn { fill: #ff8a80 } .dot { fill: #f0b35c }
    .c0 { fill: #d99a3f } .c1 { fill: #7fa85c } .c2 { fill: #5f93bd } .c3 { fill: #b97a9f }
    .c4 { fill: #cf7a61 } .c5 { fill: #8f87cc } .c6 { fill: #5aa898 } .c7 { fill: #b3a45a }
    .on { fill: #1a1715 }
  }
"""


class Drawing:
    """Collects shapes, with their upper left corners in pixels."""

    def __init__(self, width: int, height: int, label: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{escape(label)}">',
            f"<style>{_STYLE}</style>",
        ]

    def text(self, x: float, y: float, words: object, kind: str = "", at: str = "start") -> None:
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{at}">'
            f"{escape(str(words))}</text>"
        )

    def heading(self, x: float, title: str, about: str) -> None:
        """What stands above a column: its title, and a line about it."""
        self.text(x, 24, title, "title")
        self.text(x, 42, about, "small")

    def rect(
        self, x: float, y: float, width: float, height: float, kind: str = "box", corner: int = 4
    ) -> None:
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner}" '
            f'class="{kind}"/>'
        )

    def cell(self, x: float, y: float, size: float, words: object, kind: str) -> None:
        """A square with a word in it."""
        self.rect(x, y, size, size, kind, 3)
        self.text(x + size / 2, y + size / 2 + 4, words, "on small", "middle")

    def dot(self, x: float, y: float) -> None:
        self.parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="1.8" class="dot"/>')

    def line(self, *points: tuple[float, float], kind: str = "cut") -> None:
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{path}"/>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """A line along the points, with a tip in the direction of its last part."""
        self.line(*points, kind="arrow")
        (from_x, from_y), (x, y) = points[-2:]
        length = max(abs(x - from_x), abs(y - from_y))
        across, down = (x - from_x) / length, (y - from_y) / length
        left = (x - 7 * across - 4 * down, y - 7 * down + 4 * across)
        right = (x - 7 * across + 4 * down, y - 7 * down - 4 * across)
        corners = " ".join(f"{a:.4g},{b:.4g}" for a, b in ((x, y), left, right))
        self.parts.append(f'<polygon class="tip" points="{corners}"/>')

    def svg(self) -> str:
        return "\n".join([*self.parts, "</svg>"]) + "\n"


def one_stream() -> str:
    """A run that is stopped, and goes on elsewhere with the same batches."""
    drawing = Drawing(760, 236, "A training that is stopped and goes on with the same batches")
    batches = list(bushel.MapDataset.range(24).shuffle(seed=4).batch(2))
    stop = 5

    def row(y: int, title: str, about: str, steps: range, faint: range) -> None:
        drawing.text(0, y + 15, title, "title")
        drawing.text(0, y + 31, about, "small")
        for step in itertools.chain(steps, faint):
            kind = "gone" if step in faint else ""
            x = 158 + 50 * step
            for place, record in enumerate(batches[step]):
                drawing.rect(x, y + 19 * place, 44, 19, f"c{record % 8} {kind}", 3)
                drawing.text(x + 22, y + 19 * place + 13, record, f"on small {kind}", "middle")

    whole = range(len(batches))
    drawing.text(158, 12, "step 0", "small")
    row(22, "Never stopped", "1 host, no workers", whole, range(0))
    row(88, "Stopped", "4 hosts, 8 workers each", range(stop), range(stop, len(batches)))
    row(154, "Went on", "2 hosts, 3 workers each", range(stop, len(batches)), range(stop))
    cut = 158 + 50 * stop - 3
    drawing.line((cut, 78), (cut, 202))
    drawing.text(cut + 8, 143, "state: a few numbers, in your checkpoint", "warn small")
    drawing.text(
        0, 228, "The records of every step, their order and their bytes: the same.", "title"
    )
    return drawing.svg()


def block_way() -> str:
    """What happens to eight positions on their way to one batch."""
    drawing = Drawing(760, 330, "A block of eight positions on its way through the steps")
    count = 8
    shuffled = bushel.MapDataset.range(24).shuffle(seed=1)
    keys = [shuffled[position] for position in range(count)]
    size, top = 26, 62
    stages = [
        (20, "positions", "8 are asked for", range(count)),
        (172, "keys", "arithmetic on an array", keys),
        (324, "records", "one read of the source", [f"r{key}" for key in keys]),
        (476, "elements", "one loop in C", [f"e{key}" for key in keys]),
    ]
    steps = ["shuffle", "source", "map(f)", "batch(8)"]
    for (x, title, about, values), step in zip(stages, steps, strict=True):
        drawing.heading(x, title, about)
        for number, (value, key) in enumerate(zip(values, keys, strict=True)):
            drawing.cell(x + 8, top + number * (size + 3), size, value, f"c{key % 8}")
        middle = top + count * (size + 3) / 2
        drawing.arrow((x + 52, middle), (x + 142, middle))
        drawing.text(x + 97, middle - 10, step, "code", "middle")
    drawing.heading(628, "one batch", "columns, one memory")
    drawing.rect(628, top - 6, 112, count * (size + 3) + 9)
    for number, key in enumerate(keys):
        drawing.rect(636, top + number * (size + 3), 60, size, f"c{key % 8}", 0)
        drawing.rect(702, top + number * (size + 3), 30, size, f"c{key % 8}", 0)
    drawing.text(666, top + count * (size + 3) + 20, "image", "small", "middle")
    drawing.text(717, top + count * (size + 3) + 20, "label", "small", "middle")
    drawing.text(
        20, 326, "Each step is asked once for the block, and not once for each element.", "small"
    )
    return drawing.svg()


def cut() -> str:
    """Which steps run in workers, and which in the trainer."""
    stream = (
        bushel.MapDataset.range(1000)
        .shuffle(seed=1)
        .map(abs)
        .to_iter_dataset()
        .filter(bool)
        .batch(8)
        .map(len)
        .mp_prefetch(bushel.MultiprocessingOptions(num_workers=4))
    )
    names = {"range": "source", "map(abs)": "map(decode)", "filter": "filter(keep)"}
    names |= {"map(len)": "map(augment)", "shuffle": "shuffle", "batch": "batch(8)"}
    shown = [
        (next(name for start, name in names.items() if step["name"].startswith(start)), step)
        for step in stream.explain().to_dict()["steps"]
        if step["kind"] != "Place"
    ]
    drawing = Drawing(760, 250, "Steps in workers, and steps in the trainer")
    drawing.rect(0, 28, 760, 78, "field", 8)
    drawing.rect(0, 150, 760, 78, "field", 8)
    drawing.text(12, 20, "worker processes: any step that needs no memory", "title")
    drawing.text(12, 245, "your program: what has to see elements in order", "title")
    x, before = 14.0, None
    for name, step in shown:
        at_workers = step["place"] == "workers"
        width = 7.6 * len(name) + 18
        y = 52 if at_workers else 174
        if before is not None:
            was_x, was_y = before
            if was_y == y:
                drawing.arrow((was_x, y + 16), (x, y + 16))
            else:
                turn = (was_x + x) / 2
                drawing.arrow((was_x, was_y + 16), (turn, was_y + 16), (turn, y + 16), (x, y + 16))
        drawing.rect(x, y, width, 32)
        drawing.text(x + width / 2, y + 21, name, "code", "middle")
        before = (x + width, y)
        x += width + 28
    assert before is not None
    drawing.arrow((before[0], before[1] + 16), (746, before[1] + 16), (746, 190), (706, 190))
    drawing.text(700, 195, "training", "title", "end")
    drawing.line((0, 128), (760, 128))
    drawing.text(12, 124, "the cut", "warn small")
    drawing.text(12, 143, "shared memory: batches cross without a copy", "small")
    return drawing.svg()


def lanes() -> str:
    """The same rows from the same lanes, whoever owns them."""
    drawing = Drawing(760, 336, "Eight lanes on four hosts and on two: the same batch")
    count, steps, size, gap, top = 8, 6, 26, 4, 62
    alone = bushel.ShardOptions(0, 1)
    stream = bushel.MapDataset.range(count * steps).lanes(count, shard_options=alone)
    first = next(iter(stream.filter(lambda x: x % 3 > 0).batch(count)))
    drawing.heading(20, "lanes(8) deals positions", "position p to lane p % 8")
    drawing.heading(262, "a filter in each lane", "lanes do not wait for lanes")
    drawing.heading(470, "batch(8)", "a row of each lane")
    drawing.text(590, 24, "4 hosts", "title")
    drawing.text(680, 24, "2 hosts", "title")
    drawing.text(590, 42, "own 2 lanes", "small")
    drawing.text(680, 42, "own 4 lanes", "small")
    for lane in range(count):
        y = top + lane * (size + gap)
        dealt = range(lane, count * steps, count)
        kept = [position for position in dealt if position % 3 > 0]
        for number, position in enumerate(dealt):
            faint = "" if position in kept else " gone"
            drawing.cell(20 + number * 30, y, size, position, f"c{lane}{faint}")
        drawing.arrow((206, y + size / 2), (254, y + size / 2))
        for number, position in enumerate(kept):
            drawing.cell(262 + number * 30, y, size, position, f"c{lane}")
        drawing.arrow((394, y + size / 2), (462, y + size / 2))
        drawing.cell(486, y, size + 8, first[lane], f"c{lane}")
    for x, hosts in ((590, 4), (680, 2)):
        own = count // hosts
        for host in range(hosts):
            y = top + host * own * (size + gap)
            drawing.rect(x, y, 60, own * (size + gap) - gap)
            drawing.text(x + 30, y + own * (size + gap) / 2 + 2, f"host {host}", "small", "middle")
    drawing.text(
        20,
        328,
        "Who owns a lane changes nothing in it: a state saved on 4 hosts goes on with 2.",
        "small",
    )
    return drawing.svg()


def permutation() -> str:
    """Where each position comes from, computed for two epochs."""
    drawing = Drawing(760, 268, "The permutation of 200 records in two epochs")
    count, side, top = 200, 180, 40
    shuffled = bushel.MapDataset.range(count).shuffle(seed=7)
    for epoch, x in ((0, 20), (1, 240)):
        drawing.text(x, 24, f"epoch {epoch}", "title")
        drawing.rect(x, top, side, side, "field")
        for position in range(count):
            key = shuffled[epoch * count + position]
            drawing.dot(x + side * (position + 0.5) / count, top + side * (1 - (key + 0.5) / count))
        drawing.text(x, top + side + 16, "position →", "small")
    drawing.text(460, 24, "computed", "title")
    drawing.text(460, 56, f"position 17   →   key {shuffled[17]}", "code")
    drawing.text(460, 78, "a few rounds of arithmetic with the seed and", "small")
    drawing.text(460, 94, "the epoch; a whole block in one call of numpy", "small")
    drawing.text(460, 112, "memory for 10⁹ records: none", "small")
    drawing.text(460, 156, "stored, as a list would be", "title")
    drawing.text(460, 178, "all keys, shuffled by hand", "small")
    drawing.text(460, 194, "memory for 10⁹ records: 8 GB,", "small")
    drawing.text(460, 210, "made anew for each epoch before it can begin", "small")
    drawing.text(
        20, 260, "Each key comes once in an epoch: one dot in each column and each row.", "small"
    )
    return drawing.svg()


PICTURES: dict[str, Callable[[], str]] = {
    "one-stream": one_stream,
    "block": block_way,
    "cut": cut,
    "lanes": lanes,
    "permutation": permutation,
}


def main(names: Sequence[str] = tuple(PICTURES)) -> None:
    FOLDER.mkdir(exist_ok=True)
    for name in names:
        (FOLDER / f"{name}.svg").write_text(PICTURES[name]())


if __name__ == "__main__":
    main()
