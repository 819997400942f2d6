"""Imports pyarrow when a source needs it."""

from functools import cache
from typing import Any

from bushel.errors import MissingPackageError


@cache
def arrow(what: str = "Arrow data", extra: str = "arrow") -> Any:
    """The package; `what` needs it, and `extra` installs it."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackageError(f"{what} need the package pyarrow", extra) from error
    return pyarrow


@cache
def parquet() -> Any:
    """The part of it that reads Parquet files."""
    arrow("Parquet files", "parquet")
    import pyarrow.parquet

    return pyarrow.parquet
