"""Tar files, whose members are found by an index."""
