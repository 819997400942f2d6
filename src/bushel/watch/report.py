"""The HTML report about a run: why it is slow, its steps, its waits; no passwords of addresses."""

import json
import os
import platform
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from bushel.core.frozen import frozen
from bushel.core.machine import available_cores
from bushel.deliver.run_history import RunEvent, RunHistory, RunLook
from bushel.deliver.wait_history import WaitColumn
from bushel.errors import FileError
from bushel.files.whole import written_whole
from bushel.watch.course_picture import picture_of_course
from bushel.watch.explanation import Explanation
from bushel.watch.html import heading, page, piece
from bushel.watch.html import table as html_table
from bushel.watch.slow_table import SlowBlock, public, table_of_slow_blocks
from bushel.watch.stats import Stats
from bushel.watch.wait_picture import picture_of_waits

# Packages whose version is shown, if the program has imported them.
_PACKAGES = ("bushel", "numpy", "jax", "torch", "tensorflow", "pyarrow")
_WHICH_BLOCKS = (
    "Of the blocks that were timed, of steps that are read by position: a step's own time, and the "
    "record that the block, or the task of a worker, began with."
)


@frozen
class RunSoFar:
    """The data of a report."""

    stats: Stats
    explanation: Explanation
    waits: Sequence[WaitColumn]
    # None if steps are not counted.
    history: RunHistory | None = None
    slow_blocks: Sequence[SlowBlock] = ()


def write_report(path: str, run: RunSoFar, private: bool) -> None:
    """Writes the page, atomically."""
    check_file(path, "a report", "run.html")
    made = report_page(run, private)
    if private:
        made = without_secrets(made)
    with written_whole(path) as out:
        out.write(made.encode())


class _NotYetError(Exception):
    """Abandons the writing of a file before it has its name."""


def check_file(path: str, what: str, example: str) -> None:
    """Refuses a path to which no file can be written; leaves an existing file unchanged."""
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise FileError(f"there is no folder {folder!r} to write {os.path.basename(path)!r} in.")
    if os.path.isdir(path) or not os.path.basename(path):
        raise FileError(f"{path!r} is a folder: {what} is a file, such as {example!r} in it.")
    try:
        if not os.path.lexists(path):
            os.readlink(path)  # It raises what is wrong with an impossible name.
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _not_written(path, what, error) from None
    try:
        # In the same way as it is written later.
        with written_whole(path, lasting=False):
            raise _NotYetError
    except _NotYetError:
        return
    except OSError as error:
        raise _not_written(path, what, error) from None


def _not_written(path: str, what: str, error: OSError) -> FileError:
    return FileError(
        f"{what} cannot be written to {path!r:.200}: {error.strerror or error}. It takes the path "
        "of a file in a folder that you may write to."
    )


def report_page(run: RunSoFar, private: bool = True) -> str:
    """The page as HTML."""
    about, stats, history = _about(), run.stats, run.history or RunHistory()
    course, slow = picture_of_course(history), table_of_slow_blocks(run.slow_blocks, private)
    content = [
        stats.to_html(picture_of_waits(run.waits, stats.elements), course),
        piece(heading("Slowest blocks"), slow, [("", _WHICH_BLOCKS)]) if slow else "",
        piece(heading("Pipeline"), run.explanation._repr_html_()),
        piece(heading("Made with"), html_table(("what", "which"), about.items())),
        _data(
            {
                "report": 1,
                "about": about,
                **stats.to_dict(),
                "waits": _columns(WaitColumn, run.waits),
                "course": _columns(RunLook, history.looks),
                "events": _columns(RunEvent, history.events),
                "slow_blocks": [public(block, private) for block in run.slow_blocks],
            }
        ),
    ]
    return page("What a loop waited for", "".join(content))


def _about() -> dict[str, str]:
    modules = ((name, sys.modules.get(name)) for name in _PACKAGES)
    return {
        "written": datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "Python": platform.python_version(),
        **{name: str(getattr(module, "__version__", "?")) for name, module in modules if module},
        "system": f"{platform.system()} {platform.machine()}",
        "cores": f"{available_cores():g}",
    }


def _columns(kind: Any, rows: Sequence[Any]) -> dict[str, list[Any]]:
    return {name: [getattr(one, name) for one in rows] for name in kind._fields}


def _data(values: dict[str, Any]) -> str:
    """Values for programs that read the page: not executed, and no text can end the element."""
    text = json.dumps(values, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="figures">{text}</script>'


# An address: user, host, and query. It is in HTML or in JSON, and ends at a quotation mark or a
# tag.
_INNER = r"(?:(?!&quot;|&#x27;|&lt;|&gt;)[^\s<>'\"\\])"
_ADDRESS = re.compile(rf"\b([a-z][a-z0-9+.-]*://)((?:(?![/?#]){_INNER})*@)?", re.IGNORECASE)
_QUERY = re.compile(rf"(://(?:(?![?#]){_INNER})*)[?#]{_INNER}+", re.IGNORECASE)


def without_secrets(made: str) -> str:
    """The text, without users in addresses of files, and without queries.

    >>> without_secrets("gs://a/b.parquet, https://me:secret@host/a?key=1&amp;b=2 and more")
    'gs://a/b.parquet, https://host/a?... and more'
    """
    return _QUERY.sub(r"\1?...", _ADDRESS.sub(r"\1", made))
