"""A folder as `energon prepare` (megatron-energon 7.4.1) leaves it: what it wrote, and the tars.

Its indexes of the tar files, `.tar.idx` and `index.sqlite`, are left out: nobody here reads them.
"""

import io
import tarfile
from pathlib import Path

PREPARED = {
    ".info.json": """{
  "energon_version": "7.4.1",
  "shard_counts": {
    "shards/shard_000.tar": 4,
    "shards/shard_001.tar": 4,
    "shards/shard_002.tar": 4
  }
}""",
    "split.yaml": """split_parts:
  train:
  - shards/shard_{000..001}.tar
  val:
  - shards/shard_002.tar
exclude: []
""",
}


def write_shards(folder: Path) -> None:
    """Writes the tar files that were prepared."""
    (folder / "shards").mkdir(parents=True)
    for shard in range(3):
        with tarfile.open(folder / f"shards/shard_{shard:03d}.tar", "w") as tar:
            for number in range(4):
                files = {"jpg": f"img{number}", "txt": f"caption {number}"}
                for ending, text in files.items():
                    member = tarfile.TarInfo(f"sample_{shard}_{number}.{ending}")
                    member.size = len(text)
                    tar.addfile(member, io.BytesIO(text.encode()))


if __name__ == "__main__":  # With `megatron-energon` installed, compares what it writes.
    import tempfile

    from megatron.energon.flavors import BaseWebdatasetFactory

    with tempfile.TemporaryDirectory() as name:
        write_shards(Path(name))
        BaseWebdatasetFactory.prepare_dataset(
            Path(name),
            [f"shards/shard_{shard:03d}.tar" for shard in range(3)],
            split_parts_ratio=[("train", 2), ("val", 1)],
            shuffle_seed=None,
            workers=1,
        )
        for file, text in PREPARED.items():
            assert Path(name, ".nv-meta", file).read_text() == text, file
