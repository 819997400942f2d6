"""Handing elements over."""
