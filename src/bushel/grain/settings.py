"""Process-wide settings, read as attributes and changed with `config.update`."""

import logging
from typing import Any, ClassVar

_log = logging.getLogger("bushel")


class Config:
    """Settings of this process. None of them has an effect yet, which is logged when one is set.

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

    def update(self, name: str, value: Any) -> None:
        """Changes one setting."""
        if name not in self._DEFAULTS:
            raise ValueError(self._unknown(name))
        if value != self._DEFAULTS[name]:
            _log.warning("the setting %s = %r is accepted and has no effect.", name, value)
        self.__dict__["_values"][name] = value

    def _unknown(self, name: str) -> str:
        return f"there is no setting {name!r}; there are {', '.join(self._DEFAULTS)}."


config = Config()
