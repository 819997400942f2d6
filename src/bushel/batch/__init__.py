"""Neighbours joined into new elements."""
