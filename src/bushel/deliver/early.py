"""What begins when a dataset with workers is built, long before anybody iterates over it."""

from bushel.workers.home import Home


def home_for_workers() -> Home:
    """Has the first process started, and imports meanwhile what an iteration takes."""
    home = Home.of_a_new_dataset()
    import bushel.deliver.open
    import bushel.run.build
    import bushel.workers.spread  # noqa: F401

    return home
