import sys

from benchmarks.busy import main

sys.exit(main())
