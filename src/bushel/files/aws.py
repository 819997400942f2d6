"""Credentials for S3 and the region of a bucket, as Amazon's own tools find them."""

import os
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from bushel.errors import FileError

# botocore returns credentials that remain valid for at least ten more minutes.
_ASK_AGAIN = timedelta(minutes=10)
_PATIENCE_SECONDS = 3.0
_ANYWHERE = "https://s3.amazonaws.com"


def credentials_for(path: str, anonymous: bool | None) -> dict[str, Any]:
    """The options with which a store finds credentials: keys, profiles, roles of machines.

    Without any, requests are anonymous, unless that is forbidden (`anonymous` is False).
    """
    if anonymous:
        return {"skip_signature": True}
    if os.environ.get("AWS_ACCESS_KEY_ID") and os.environ.get("AWS_SECRET_ACCESS_KEY"):
        return {}  # They come first, and obstore reads them itself.
    try:
        import boto3
        import botocore.exceptions
    except ImportError:
        return {}  # Without botocore, obstore finds roles of machines, though no profiles.
    try:
        session = boto3.Session()
        credentials = session.get_credentials()
    except botocore.exceptions.BotoCoreError as error:
        raise FileError(f"{path!r} may not be read: {error}") from error
    if credentials is None and anonymous is None:
        return {"skip_signature": True}
    if credentials is None:
        raise FileError(
            f"{path!r} may not be read: no credentials were found. Check the credentials in the "
            "environment, or allow to do without them in fsspec's configuration: "
            "FSSPEC_S3='{\"anon\": true}'."
        )
    config: dict[str, Any] = {"credential_provider": _provider(credentials)}
    if session.region_name:
        config["region"] = session.region_name
    return config


def _provider(credentials: Any) -> Callable[[], dict[str, Any]]:
    def provide() -> dict[str, Any]:
        now = credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key,
            "secret_access_key": now.secret_key,
            "token": now.token,
            "expires_at": datetime.now(UTC) + _ASK_AGAIN,
        }

    return provide


def region_of(bucket: str) -> str | None:
    """The region of a bucket, which the server tells to anybody; None without an answer."""
    request = urllib.request.Request(f"{_ANYWHERE}/{bucket}", method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as answer:
            headers = answer.headers
    except urllib.error.HTTPError as error:
        headers = error.headers  # "Not here" and "forbidden" both have the region.
    except OSError:
        return None
    region: str | None = headers.get("x-amz-bucket-region")
    return region
