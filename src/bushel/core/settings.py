"""`bushel.config`: process-wide settings, read as attributes, changed with `config.update`."""

import logging
import os
from typing import Any, ClassVar

_log = logging.getLogger("bushel")


class Config:
    """Settings of this process.

    `py_dataset_visualization_output_dir` makes an iterator explain its pipeline after its first
    element (see `watch/visualize.py`): in the log if it is "", else in that folder. With
    `py_debug_mode` steps are counted and timed, and iterators log their statistics every minute and
    at their end (see `watch/debug.py`). The other settings have no effect yet, which is logged when
    one is set.

    >>> config = Config()
    >>> config.update("py_debug_mode", True)
    >>> config.py_debug_mode
    True
    """

    _DEFAULTS: ClassVar[dict[str, Any]] = {
        "py_debug_mode": False,
        "py_dataset_visualization_output_dir": None,
        "py_relay_sigterm_to_main": False,
        "py_traceback_filtering": "auto",
    }

    _WITHOUT_EFFECT: ClassVar[frozenset[str]] = frozenset(
        {"py_relay_sigterm_to_main", "py_traceback_filtering"}
    )

    def __init__(self) -> None:
        self.__dict__["_values"] = dict(self._DEFAULTS)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            if name.startswith("__"):
                raise AttributeError(name) from None
            raise ValueError(self._unknown(name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise ValueError(f"write `config.update({name!r}, {value!r})` to change a setting.")

    def get_or_default(self, name: str) -> Any:
        """The value of a setting, by its name.

        >>> Config().get_or_default("py_debug_mode")
        False
        """
        return getattr(self, name)

    def update(self, name: str, value: Any) -> None:
        """Changes one setting."""
        if name not in self._DEFAULTS:
            raise ValueError(self._unknown(name))
        if name == "py_dataset_visualization_output_dir" and value is not None:
            try:
                value = os.fspath(value)
            except TypeError:
                raise TypeError(
                    f"{name} is a folder, or '' for the log, or None, and not {value!r}."
                ) from None
        if name in self._WITHOUT_EFFECT and value != self._DEFAULTS[name]:
            _log.warning("the setting %s = %r is accepted and has no effect.", name, value)
        self.__dict__["_values"][name] = value

    def _unknown(self, name: str) -> str:
        return f"there is no setting {name!r}; there are {', '.join(self._DEFAULTS)}."


config = Config()
