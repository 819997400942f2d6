"""Every exception that bushel raises on its own behalf.

    BushelError
    ├── PlanError          (ValueError)         the pipeline as written cannot work
    ├── SourceError        (TypeError)          this object cannot be read as a source
    ├── BatchError         (ValueError)         these elements cannot be stacked
    ├── EmptyDatasetError  (ZeroDivisionError,  there is no element at any position
    │                       IndexError)
    ├── StateError         (ValueError)         this state does not belong to this pipeline
    │   └── StateRangeError (IndexError)        it points outside of the dataset
    ├── ClosedError        (ValueError)         the iterator was closed
    ├── ForkedError        (RuntimeError)       the iterator belongs to the parent process
    ├── FilterError        (ValueError)         a filter dropped more than was allowed
    ├── WorkerError        (RuntimeError)       a worker process cannot do its work
    ├── AgreementError     (RuntimeError)       the processes of a job do different things
    └── MissingPackageError (ImportError)       an optional package is not installed

Each one is also the builtin that a program written for Grain would catch. Exceptions of
user functions keep their own type; bushel only adds a note that names the operation and
the position (see `note_where`).
"""


class BushelError(Exception):
    """Base of all errors that bushel itself raises."""


class PlanError(BushelError, ValueError):
    """The pipeline as written cannot work."""


class SourceError(BushelError, TypeError):
    """An object was given as a source that cannot be read as one."""


class BatchError(BushelError, ValueError):
    """Elements that should form a batch do not fit together."""


class EmptyDatasetError(BushelError, ZeroDivisionError, IndexError):
    """An element was asked of a dataset that has none."""


class StateError(BushelError, ValueError):
    """A state does not belong to the pipeline that it is restored into."""


class StateRangeError(StateError, IndexError):
    """A state points outside of the dataset."""


class ClosedError(BushelError, ValueError):
    """An iterator was used after it had been closed."""


class ForkedError(BushelError, RuntimeError):
    """An iterator was used in a process that was forked after it had been made."""


class FilterError(BushelError, ValueError):
    """A filter dropped a larger share of the elements than the options allow."""


class WorkerError(BushelError, RuntimeError):
    """A worker process cannot do its work: it does not start, hangs, or dies of a record."""


class AgreementError(BushelError, RuntimeError):
    """The processes of a job do not do the same."""


class MissingPackageError(BushelError, ImportError):
    """A package is needed that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what}. Install it with: pip install "bushel[{extra}]"')


def note_where(error: BaseException, operation: str, position: int) -> None:
    """Adds a note that names the operation and the position, once for each error.

    The innermost operation calls first and wins: the ones around it only pass the error on.

    >>> error = KeyError("label")
    >>> note_where(error, "map(decode)", 17)
    >>> error.__notes__
    ['bushel: raised in `map(decode)` at position 17.']
    """
    notes = getattr(error, "__notes__", [])
    if not any(note.startswith("bushel: raised in") for note in notes):
        error.add_note(f"bushel: raised in `{operation}` at position {position}.")
