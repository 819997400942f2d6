"""Worker processes: start, tasks, shared memory, replacement."""
