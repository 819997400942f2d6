"""`python -m bushel`: the command line."""

import sys

from bushel.cli.main import main

sys.exit(main())
