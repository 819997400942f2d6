"""Side-by-side benchmarks: each workload by hand, in bushel, in Grain and in torch, in one run.

`python -m benchmarks` prints one table of ratios; README.md beside this file says how to read it.
"""
