"""Marks in the chain that say where or how, and what must hold of a chain."""
