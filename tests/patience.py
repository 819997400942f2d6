"""How long tests wait for what must come: so long that only what hangs takes longer.

No test waits this long on any machine, however busy, unless something is wrong; so the number is
large, and there is one of it. Nothing asserts how long something took.
"""

PATIENCE_SECONDS = 600.0
