"""Bytes of files, here or far away: which files, ranges of them, and where records begin."""
