"""Uploads, lists, reads and removes whole objects in object stores."""

import os
from pathlib import Path
from typing import Any

from bushel.errors import FileError, PlanError
from bushel.files import stores

_OBJECT_STORES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss")


def check_writable(path: str) -> None:
    """Refuses a path outside of object stores."""
    scheme = path.partition("://")[0]
    if scheme not in _OBJECT_STORES or not stores.serves(path):
        raise PlanError(
            f"{path!r} cannot be written to: bushel writes to folders of this machine and to "
            "object stores (s3://, gs://, az://)."
        )


def put(path: str, content: bytes | os.PathLike[str]) -> None:
    """Makes an object from bytes, or from a local file; it appears complete, or not at all."""
    store, key = stores.store_of(path)
    data: Any = content if isinstance(content, bytes) else Path(content)
    try:
        stores.package(path).put(store, key, data)
    except Exception as error:
        raise _failed(error, path, "written") from error


def get(path: str) -> bytes | None:
    """The bytes of an object; None if it does not exist."""
    store, key = stores.store_of(path)
    try:
        return bytes(stores.package(path).get(store, key).bytes())
    except FileNotFoundError:
        return None
    except Exception as error:
        raise _failed(error, path, "read") from error


def listed(folder: str) -> dict[str, int]:
    """The objects right below a folder, by name, and their sizes."""
    store, key = stores.store_of(folder.rstrip("/") + "/")
    prefix = key.rstrip("/") + "/" if key.strip("/") else ""
    try:
        found: dict[str, int] = {}
        for some in stores.package(folder).list(store, prefix or None):
            for meta in some:
                name = meta["path"][len(prefix) :]
                if "/" not in name:
                    found[name] = int(meta["size"])
        return found
    except Exception as error:
        raise _failed(error, folder, "listed") from error


def remove(folder: str, names: list[str]) -> None:
    """Removes objects below a folder; missing ones are ignored."""
    for name in names:
        store, key = stores.store_of(f"{folder.rstrip('/')}/{name}")
        try:
            stores.package(folder).delete(store, key)
        except FileNotFoundError:
            continue
        except Exception as error:
            raise _failed(error, f"{folder}/{name}", "removed") from error


def _failed(error: Exception, path: str, what: str) -> FileError:
    told = str(error).strip().partition("\n")[0].rpartition(" - ")[2].strip(" :.")
    return FileError(
        f"{path!r} cannot be {what}: {told}. Check the bucket, and the credentials in the "
        "environment."
    )
