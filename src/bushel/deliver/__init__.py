"""Iterators and their statistics, devices, and the process's place in its job."""
