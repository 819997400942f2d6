"""Remote file systems by fsspec, for what obstore does not support.

The options of fsspec come from the environment or its files: every process finds them itself, and
no key is in a pickle.
"""

import os
from collections.abc import Mapping
from typing import Any

from bushel.errors import MissingPackageError, PlanError

# fsspec's options that obstore supports, and their names there.
_S3 = {
    "anon": "skip_signature",
    "key": "access_key_id",
    "secret": "secret_access_key",
    "token": "token",
    "endpoint_url": "endpoint",
    "region_name": "region",
}
_WORDS: dict[str, dict[str, str]] = {"s3": _S3, "s3a": _S3}
_PLACES = ("AWS_", "AZURE_", "GCE_", "GOOGLE_", "FSSPEC_", "HTTP", "NO_PROXY")


def system_of(path: str) -> tuple[Any, str]:
    """The file system of a path, and the name of the path in it."""
    try:
        found: tuple[Any, str] = _fsspec().core.url_to_fs(path)
    except ImportError as error:
        raise MissingPackageError(f"{path!r} cannot be read: {error}", "remote") from error
    except ValueError as error:
        raise PlanError(f"{path!r} cannot be read: {error}.") from error
    return found


def configured() -> dict[str, Any]:
    """The options of all file systems."""
    try:
        return dict(_fsspec().config.conf)
    except ImportError:
        return {}


def configure(options: Mapping[str, Any]) -> None:
    """Takes the options of another process."""
    _fsspec().config.conf.update(options)


def settings() -> int:
    """A number that changes with the environment or an option."""
    environment = [item for item in os.environ.items() if item[0].upper().startswith(_PLACES)]
    return hash((tuple(sorted(environment)), repr(configured())))


def options_for_obstore(protocol: str) -> dict[str, Any] | None:
    """The options of a file system for obstore; None if obstore does not support them."""
    told: dict[str, Any] = dict(configured().get(protocol, {}))
    told |= told.pop("client_kwargs", {})
    words = _WORDS.get(protocol, {})
    options = {words.get(name, name): value for name, value in told.items()}
    if protocol in ("http", "https"):
        headers = options.pop("headers", {})
        return None if options else {"client_options": {"default_headers": headers}}
    return options if set(told) <= set(words) else None


def _fsspec() -> Any:
    import fsspec
    import fsspec.config

    return fsspec
