"""Whole jobs, from files to batches, in bushel and in what people would use instead.

`python -m benchmarks jobs` runs them; README.md in the folder above says what is measured.
"""


def main(argv: list[str]) -> int:
    # Worker processes import this package for the users' functions, not for the command.
    from benchmarks.jobs.command import main as command

    return command(argv)
