"""The exception classes of bushel; notes on errors: the step and position, the file and record.

    BushelError
    ├── PlanError          (ValueError)         the pipeline as written cannot work
    │   └── UnpicklableError (TypeError)        a part of it cannot be sent to workers
    ├── SourceError        (TypeError)          this object cannot be read as a source
    ├── BatchError         (ValueError)         these elements cannot be stacked
    │   ├── StructureError (TypeError)          they are made differently
    │   └── FeatureError   (KeyError)           one lacks what it should be packed by
    ├── EmptyDatasetError  (ZeroDivisionError,  there is no element at any position
    │                       IndexError)
    ├── StateError         (ValueError)         this state does not belong to this pipeline
    │   └── StateRangeError (IndexError)        it points outside of the dataset
    ├── ClosedError        (ValueError)         the iterator was closed
    ├── ForkedError        (RuntimeError)       the iterator belongs to the parent process
    ├── FilterError        (ValueError)         a filter dropped more than was allowed
    ├── BadRecordsError    (ValueError)         more records are bad than was allowed
    ├── WorkerError        (RuntimeError)       a worker process cannot do its work
    │   └── FatalElementError                   an element ends every worker that has it
    ├── AgreementError     (RuntimeError)       the processes of a job do different things
    ├── FileError          (RuntimeError,       a file of records cannot be read
    │   │                   OSError)
    │   ├── MissingFileError (FileNotFoundError) there is no such file
    │   └── RecordError    (ValueError)         what a file holds is not what it should be
    └── MissingPackageError (ImportError)       an optional package is not installed

`ChangedPipelineWarning` is no error: a state was restored whose code or files have changed.

Each one is also the builtin that a program written for Grain would catch. Exceptions of
user functions keep their own type; bushel only adds a note that names the operation and
the position (see `note_where`).
"""

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any


class BushelError(Exception):
    """Base of all errors that bushel itself raises."""


class PlanError(BushelError, ValueError):
    """The pipeline as written cannot work."""


class UnpicklableError(PlanError, TypeError):
    """A part of a pipeline cannot be sent to worker processes."""


class SourceError(BushelError, TypeError):
    """An object was given as a source that cannot be read as one."""


class BatchError(BushelError, ValueError):
    """Elements that should form a batch do not fit together."""


class StructureError(BatchError, TypeError):
    """Elements that should form a batch are made differently."""


class FeatureError(BatchError, KeyError):
    """An element does not have a feature that it should be packed by."""

    __str__ = ValueError.__str__  # That of a KeyError puts the text in quotes.


class EmptyDatasetError(BushelError, ZeroDivisionError, IndexError):
    """An element was asked of a dataset that has none."""


class StateError(BushelError, ValueError):
    """A state does not belong to the pipeline that it is restored into."""


class StateRangeError(StateError, IndexError):
    """A state points outside of the dataset."""


class ChangedPipelineWarning(UserWarning):
    """A state was restored whose functions or files are not those that it was saved with."""


class ClosedError(BushelError, ValueError):
    """An iterator was used after it had been closed."""


class ForkedError(BushelError, RuntimeError):
    """An iterator was used in a process that was forked after it had been made."""


class FilterError(BushelError, ValueError):
    """A filter dropped a larger share of the elements than the options allow."""


class BadRecordsError(BushelError, ValueError):
    """More records could not be read or made than `on_error` allows."""


class WorkerError(BushelError, RuntimeError):
    """A worker process cannot do its work: it does not start, hangs, or dies of a record."""


class FatalElementError(WorkerError):
    """An element ended, or hung, one worker process after the other."""


class AgreementError(BushelError, RuntimeError):
    """The processes of a job do not do the same."""


class FileError(BushelError, RuntimeError, OSError):
    """A file of records cannot be read."""


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class RecordError(FileError, ValueError):
    """What a file holds cannot be read as a record."""


class MissingPackageError(BushelError, ImportError):
    """A package is needed that is not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what}. Install it with: pip install "bushel[{extra}]"')


def note_call(error: TypeError, function: Any, called_with: tuple[str, ...]) -> None:
    """Says with what a function is called, if it does not take that.

    >>> error = TypeError("<lambda>() takes 1 positional argument but 2 were given")
    >>> note_call(error, lambda x: x, ("element", "rng"))
    >>> error.__notes__
    ['bushel: the function is called with 2 arguments: (element, rng).']
    """
    import inspect  # Only for those who are mistaken.

    try:
        inspect.signature(function).bind(*called_with)
    except TypeError:
        number = f"{len(called_with)} argument{'s' if len(called_with) > 1 else ''}"
        names = ", ".join(called_with)
        error.add_note(f"bushel: the function is called with {number}: ({names}).")
    except ValueError:  # Of a function that has no signature, written in C.
        return


def note_options(error: TypeError, source: type, given: Iterable[str]) -> None:
    """Says which options a source has beside its paths, where one was given that it has not."""
    import inspect  # Only for those who are mistaken.

    known = [*inspect.signature(source).parameters][1:]
    if not set(given) <= set(known):
        told = ", ".join(known) or "none"
        add_note(error, f"bushel: options of `{source.__name__}`: {told}.")


def note_where(error: BaseException, operation: str, position: int) -> None:
    """Adds a note that names the operation and the position, once for each error.

    The innermost operation calls first and wins: the ones around it only pass the error on.

    >>> error = KeyError("label")
    >>> note_where(error, "map(decode)", 17)
    >>> error.__notes__
    ['bushel: raised in `map(decode)` at position 17.']
    """
    if not any(note.startswith("bushel: raised in") for note in notes_of(error)):
        add_note(error, f"bushel: raised in `{operation}` at position {position}.")


def add_note(error: BaseException, note: str) -> None:
    """Adds a note to an exception, unless that is one of the user's own that takes none."""
    with suppress(Exception, SystemExit):
        error.add_note(note)


def notes_of(error: BaseException) -> list[str]:
    """The notes of an exception; none of one that cannot say."""
    with suppress(Exception, SystemExit):
        return [note for note in getattr(error, "__notes__", ()) if isinstance(note, str)]
    return []


def where_raised(error: BaseException) -> tuple[str, int] | None:
    """The operation and the position that `note_where` noted.

    >>> error = KeyError("label")
    >>> note_where(error, "map(decode)", 17)
    >>> where_raised(error)
    ('map(decode)', 17)
    """
    for note in notes_of(error):
        found = re.fullmatch(r"bushel: raised in `(.*)` at position (-?\d+)\.", note, re.DOTALL)
        if found:
            return found[1], int(found[2])
    return None


def note_place(error: BaseException, path: str, record: int, offset: int | None) -> None:
    """Adds a note that names the file and the record that the error is about."""
    with suppress(Exception):
        error.bushel_place = (path, record, offset)  # type: ignore[attr-defined]
    byte = "" if offset is None else f", at byte {offset:,}"
    add_note(error, f"bushel: it is record {record} of {path!r}{byte}.")


def place_noted(error: BaseException) -> tuple[str, int, int | None] | None:
    """What `note_place` noted."""
    with suppress(Exception):
        return getattr(error, "bushel_place", None)
    return None


def replaced_file(path: str) -> FileError:
    """The error of a source whose file was replaced since it was made."""
    return FileError(
        f"{path!r} is another file than the one that this source was made for. Make the source "
        "anew."
    )
