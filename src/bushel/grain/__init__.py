"""Classes and functions that only Grain's API has, as thin layers over bushel's own.

No engine is here. Each class checks what it was given, and makes the same nodes as the methods.
"""
