"""Lanes: positions distributed over a fixed number of streams, which hosts own."""
