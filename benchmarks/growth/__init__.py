"""`python -m benchmarks growth`: what a pipeline costs as something in it grows."""

import argparse
import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.growth.run import Line


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    from benchmarks.growth.axes import AXES

    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument(
        "--only", action="append", metavar="AXIS", choices=AXES,
        help=f"this axis alone (may be given again): {', '.join(AXES)}",
    )  # fmt: skip
    parser.add_argument("--variant", action="append", help="this pipeline of it alone")
    parser.add_argument("--quick", action="store_true", help="two sizes of each, shorter")
    parser.add_argument("--rounds", type=int, default=1, help="medians of so many (%(default)s)")
    parser.add_argument("--seconds", type=float, help="of each reading (0.3; 0.1 with --quick)")
    parser.add_argument("--systems", default="bushel,grain", help="(%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all figures here")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="write a picture for each axis")
    parser.add_argument(
        "--from", type=Path, metavar="FILE", dest="given", action="append",
        help="measure nothing: take what --json wrote (again: more axes)",
    )  # fmt: skip
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds} would measure nothing; give 1 or more")
    for path in (options.json, options.draw):
        if path and not path.parent.is_dir():
            parser.error(f"{path}: there is no folder {path.parent}")
    return options


def measure_all(names: Sequence[str], options: argparse.Namespace, lines: "list[Line]") -> None:
    from benchmarks.growth.axes import AXES
    from benchmarks.growth.run import grow

    systems = tuple(name for name in options.systems.split(",") if find_spec(name))
    seconds = options.seconds or (0.1 if options.quick else 0.3)
    for name in names:
        axis = AXES[name]
        variants = {v: axis.variants[v] for v in axis.variants if v in (options.variant or [v])}
        axis = replace(axis, variants=variants)
        sizes = axis.sizes
        if options.quick:
            sizes = (sizes[0], sizes[-2])  # the largest takes the longest by far
        grow(axis, sizes, systems, seconds, options.rounds, lines)


def main(argv: Sequence[str] | None = None) -> int:
    # Here, so that a point does not import what it never uses.
    from benchmarks.growth.axes import AXES
    from benchmarks.growth.draw import draw
    from benchmarks.growth.law import breaches
    from benchmarks.growth.run import line_from_json
    from benchmarks.growth.table import render

    options = arguments(argv)
    lines = [
        line_from_json(line)
        for path in options.given or []
        for line in json.loads(path.read_text())
    ]
    # Whoever ends it, be it by a signal, still gets what there is.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        measure_all([] if options.given else options.only or list(AXES), options, lines)
    for name in AXES:
        order = list(AXES[name].variants)
        own = [line for line in lines if line.axis == name]
        own.sort(key=lambda line: order.index(line.variant))
        if own:
            print(f"\n{render(AXES[name].title, own)}")
            if options.draw:
                options.draw.mkdir(exist_ok=True)
                (options.draw / f"{name}.svg").write_text(draw(AXES[name].title, own))
    print("\nbushel / Grain; * cut short. growth: the last figure to the first (per unit of the")
    print("size, where the work grows with it: the last to the best).")
    if options.json:
        options.json.write_text(json.dumps([line.to_json() for line in lines], indent=1) + "\n")
    wrong = breaches(lines)
    for breach in wrong:
        print(f"LAW: {breach}")
    return int(bool(wrong))
