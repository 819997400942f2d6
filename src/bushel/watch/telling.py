"""Writes a text to the log so that it shows: as info, or as a warning where info is hidden."""

import logging

_log = logging.getLogger("bushel")


def tell(text: str) -> None:
    """Logs a text at a visible level: info, or warning if that is not shown."""
    level = logging.INFO if _log.isEnabledFor(logging.INFO) else logging.WARNING
    _log.log(level, "%s", text)
