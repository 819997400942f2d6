"""Which element is blamed for the end of workers, and when."""

from bushel import MapDataset, ReadOptions
from bushel.dataset import map_node
from bushel.workers.blame import Blame
from bushel.workers.fragment import Fragment, TaskMessage
from bushel.workers.task import Task


def _blame_and_task() -> tuple[Blame, Task]:
    ds = MapDataset.range(20).map(abs)
    blame = Blame([Fragment(map_node(ds), (), ReadOptions(0, 0), False, False)])
    task = Task(TaskMessage(task=3, fragment=0, state={}, stop=10, carefully=False), first=0)
    return blame, task


def _blamed(*positions: int, others: int = 0) -> int | None:
    """Where the error stands after workers ended at these, and so many of something else."""
    blame, task = _blame_and_task()
    for number, position in enumerate(positions):
        assert blame.note(task, (number + 1, 3, 0, position, ""), False, "is gone") is None
        if number < others:
            assert blame.note(None, (0, 0, -1, -1, ""), True, "was killed") is None
    return None if task.message.fatal is None else task.message.fatal.position


def test_three_in_a_row_at_the_same_element() -> None:
    assert _blamed(5, 5) is None
    assert _blamed(5, 5, 5) == 5


def test_another_element_begins_anew() -> None:
    assert _blamed(0, 5, 7) is None
    assert _blamed(0, 5, 7, 5) is None
    assert _blamed(0, 5, 7, 7) == 7


def test_where_others_end_too_it_takes_more() -> None:
    assert _blamed(*[5] * 11, others=1) is None
    assert _blamed(*[5] * 12, others=1) == 5


def test_a_task_is_tried_forty_times_whatever_ends_its_workers() -> None:
    blame, task = _blame_and_task()
    nobody_is_at_it = (0, 0, -1, -1, "")
    for _ in range(39):
        assert blame.note(task, nobody_is_at_it, killed=True, end="was killed") is None
    error = blame.note(task, nobody_is_at_it, killed=True, end="was killed")
    assert error is not None
    assert "40 worker processes ended with" in str(error)
    assert str(error).endswith("the last one was killed.")
