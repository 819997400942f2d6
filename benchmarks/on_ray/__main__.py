"""`python -m benchmarks.on_ray`."""

import sys

from benchmarks.on_ray.command import main

sys.exit(main(sys.argv[1:]))
