"""Bytes of files, local or remote: names, ranges, indexes, the cache on disk."""
