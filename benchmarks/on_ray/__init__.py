"""`python -m benchmarks ray`: workers on a Ray cluster beside local workers and Ray Data.

All of them do the same work and deliver it in the same order. The cluster is one of this machine,
so this tells what the way through Ray costs, not what more machines give.
"""

from benchmarks.on_ray.command import main as main
