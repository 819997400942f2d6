"""Written to an object store, by a real server on this machine."""

from typing import Any

import obstore
import pytest
from obstore.store import S3Store

import bushel
from bushel import MapDataset
from bushel.errors import FileError, PlanError
from tests.files.conftest import _s3, s3
from tests.write import parts

__all__ = ["_s3", "s3"]


@pytest.fixture
def bucket(s3: str) -> Any:
    import boto3

    boto3.client("s3", endpoint_url=s3).create_bucket(Bucket="out")
    return S3Store("out", endpoint=s3, client_options={"allow_http": True})


def names(bucket: Any) -> set[str]:
    return {meta["path"] for some in obstore.list(bucket) for meta in some}


@pytest.mark.parametrize("format", ["parquet", "jsonl"])
def test_an_object_store(bucket: Any, format: str) -> None:
    ds = MapDataset.range(90).shuffle(seed=1).map(parts.record)
    to = f"s3://out/{format}/a-*.{format}"
    failing = MapDataset.range(90).map(parts.fails_at_57)
    with pytest.raises(ValueError, match="57"):
        failing.write(to, shards=4, workers=0)
    begun = names(bucket)
    assert any(".a.bushel/" in name for name in begun)
    with pytest.raises(PlanError, match="begun by another pipeline"):
        ds.write(to, shards=4, workers=0)
    ds.write(to, shards=4, workers=2, overwrite=True)
    mine = {name for name in names(bucket) if name.startswith(format)}
    assert mine == {
        f"{format}/a.manifest.json",
        *(f"{format}/a-{n:05d}-of-00004.{format}" for n in range(4)),
        *(f"{format}/a.origins/{n:05d}" for n in range(4)),
    }
    for path in (f"s3://out/{format}", to, f"s3://out/{format}/a.manifest.json"):
        source = bushel.open(path, verify=True)
        assert [source[key]["id"] for key in range(90)] == [element["id"] for element in ds]
    assert source.origins_of(5)[0].key == source[5]["id"]
    obstore.delete(bucket, f"{format}/a-00002-of-00004.{format}")
    with pytest.raises(FileError, match="a-00002-of-00004"):
        bushel.open(to)


def test_places_that_cannot_be_written(s3: str) -> None:
    with pytest.raises(PlanError, match=r"'s3://' names no bucket: write it as s3://bucket"):
        MapDataset.range(3).write("s3://", format="jsonl")
    with pytest.raises(PlanError, match="bushel writes to folders of this machine and to object"):
        MapDataset.range(3).write("https://example.com/a-*.jsonl")
    with pytest.raises(FileError, match="cannot be"):
        MapDataset.range(3).write("s3://no-such-bucket/a-*.jsonl", workers=0)
