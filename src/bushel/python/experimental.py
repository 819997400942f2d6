"""Grain's `grain.python.experimental`: the same names as `bushel.experimental`."""

from bushel.experimental import *  # noqa: F403
from bushel.experimental import __all__  # noqa: F401
