"""Arrays in files and in shared memory, read where they lie."""
