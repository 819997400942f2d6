"""Sources of arrays in files and in shared memory, read without copies."""
