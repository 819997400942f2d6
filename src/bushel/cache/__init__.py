"""Elements that are computed once: remembered in memory, or kept in a file."""
