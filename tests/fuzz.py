"""Runs the tests called `test_fuzz_*` again and again, with other examples, for some minutes.

    python -m tests.fuzz --minutes 5 --seed 17

Each round tells its seed, with which it can be repeated: `BUSHEL_SEED=17 BUSHEL_EXAMPLES=40
python -m pytest tests/contract/test_fuzz_states.py`. It ends with the first failure.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
# Examples of each property in the first round; each round has twice as many as the one before.
_FIRST_EXAMPLES, _MOST_EXAMPLES = 40, 4000


def main() -> int:
    """Runs rounds until the time is over; returns 1 after a failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--examples", type=int, default=_FIRST_EXAMPLES)
    options, more = parser.parse_known_args()
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/**/test_fuzz_*.py"))
    end = time.monotonic() + 60 * options.minutes
    seed, count, rounds = options.seed, options.examples, 0
    while (left := end - time.monotonic()) > 0:
        print(f"fuzz: seed {seed}, {count} examples of each, {left:.0f} s left", flush=True)
        environment = {**os.environ, "BUSHEL_SEED": str(seed), "BUSHEL_EXAMPLES": str(count)}
        command = [sys.executable, "-m", "pytest", "-q", "-x", *files, *more]
        try:
            code = subprocess.run(command, cwd=ROOT, env=environment, timeout=left).returncode
        except subprocess.TimeoutExpired:
            break
        if code:
            print(
                f"fuzz: failed; repeat with make fuzz SEED={seed} ARGS=--examples={count}",
                flush=True,
            )
            return 1
        rounds += 1
        seed, count = seed + 1, min(2 * count, _MOST_EXAMPLES)
    print(f"fuzz: {rounds} whole rounds of {len(files)} files, and nothing found", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
