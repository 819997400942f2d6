"""The history of waits: no wait is lost when columns are joined."""

from bushel.deliver.wait_history import MOST_COLUMNS, WaitColumn, WaitHistory


def test_after_an_interrupt_there_may_be_one_column_more_than_are_joined() -> None:
    history = WaitHistory()
    # As if an interrupt had come after the column, and before columns were joined.
    history.columns = [WaitColumn(1, 0.5, 0.5, 0.5, number) for number in range(MOST_COLUMNS)]
    assert history.add(WaitColumn(1, 2.0, 2.0, 2.0, MOST_COLUMNS)) == 2
    assert sum(column.waits for column in history.columns) == MOST_COLUMNS + 1
    assert history.columns[-1] == WaitColumn(1, 2.0, 2.0, 2.0, MOST_COLUMNS)
