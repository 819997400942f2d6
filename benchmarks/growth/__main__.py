import sys

from benchmarks.growth import main

sys.exit(main())
