"""Writes to the log what the user asked for in `config`."""

import logging

_log = logging.getLogger("bushel")


def tell(text: str) -> None:
    """Logs a text at a level that is seen: as information, or where that is not, as a warning."""
    level = logging.INFO if _log.isEnabledFor(logging.INFO) else logging.WARNING
    _log.log(level, "%s", text)
