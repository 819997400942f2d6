"""Orbax is used here."""

from tests.checkpoint.garbage import garbage_of_orbax

__all__ = ["garbage_of_orbax"]
