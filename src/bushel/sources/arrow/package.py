"""Imports pyarrow when a source needs it."""

from functools import cache
from typing import Any

from bushel.errors import MissingPackageError


@cache
def arrow(what: str = "Arrow data", extra: str = "arrow") -> Any:
    """Imports pyarrow; errors say that `what` needs it, and that `extra` installs it."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingPackageError(f"{what} need the package pyarrow", extra) from error
    return pyarrow


@cache
def parquet() -> Any:
    """The module of pyarrow that reads Parquet files."""
    arrow("Parquet files", "parquet")
    import pyarrow.parquet

    return pyarrow.parquet
