"""`cache`: elements that are computed once, and kept in memory or in a file."""
