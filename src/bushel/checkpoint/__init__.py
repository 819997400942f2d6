"""Remembering where we are."""
