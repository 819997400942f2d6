"""Grain's spellings of what bushel does elsewhere: classes and functions by its names.

No engine is here. Each class checks what it was given, and makes the same nodes as the methods.
"""
