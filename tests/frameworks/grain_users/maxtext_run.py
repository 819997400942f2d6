"""MaxText: its pipeline for pre-training, on files of tokens, with each way of packing."""

# isort: off
from tests.frameworks.grain_users import which  # First of all.

# isort: on
import json
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grain
import jax
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from array_record.python.array_record_module import ArrayRecordWriter
from maxtext.input_pipeline import data_processing_utils, grain_data_processing
from maxtext.input_pipeline.protos import example_pb2

# The kind of file, the packing, this host, the number of hosts, and whether it is a mixture.
RUNS: list[tuple[str, str | None, int, int, bool]] = [
    ("arrayrecord", "first_fit", 0, 1, False),
    ("arrayrecord", "best_fit", 1, 2, False),
    ("arrayrecord", "concat_then_split", 0, 1, False),
    ("arrayrecord", None, 0, 1, False),
    ("arrayrecord", "first_fit", 0, 1, True),
    ("parquet", "first_fit", 0, 1, False),
    ("tfrecord", "first_fit", 0, 1, False),
]
NAMES = {"arrayrecord": "a-*.array_record", "parquet": "p-*.parquet", "tfrecord": "t-*.tfrecord"}


def write(folder: Path) -> None:
    rng = np.random.default_rng(0)
    documents = [rng.integers(1, 100, rng.integers(3, 40)).tolist() for _ in range(300)]
    for shard in range(3):
        records = ArrayRecordWriter(f"{folder}/a-{shard}.array_record", "group_size:1")
        with tf.io.TFRecordWriter(f"{folder}/t-{shard}.tfrecord") as other:
            for document in documents[shard::3]:
                example = example_pb2.Example()
                example.features.feature["text"].int64_list.value.extend(document)
                records.write(example.SerializeToString())
                other.write(example.SerializeToString())
        records.close()
        pq.write_table(pa.table({"text": documents[shard::3]}), f"{folder}/p-{shard}.parquet")
    parts = {"one": ("a-0.array_record", 0.7), "others": ("a-[12].array_record", 0.3)}
    mixture = {
        name: {"path": f"{folder}/{path}", "weight": weight}
        for name, (path, weight) in parts.items()
    }
    (folder / "mixture.json").write_text(json.dumps(mixture))


def pipeline(folder: Path, run: tuple[str, str | None, int, int, bool]) -> Any:
    kind, packing, host, hosts, is_mixture = run
    config = SimpleNamespace(
        grain_file_type=kind,
        packing=packing is not None,
        grain_packing_type=packing,
        max_target_length=64,
        max_segments_per_seq=None,
        add_bos=False,
        add_eos=False,
        tokenizer_path="",
        tokenizer_type="",
        hf_access_token=None,
        elastic_enabled=False,
        global_batch_size_to_load=4,
        expansion_factor_real_data=-1,
        grain_use_elastic_iterator=False,
        use_truncation=True,
        grain_ram_budget_mb=1024,
    )
    ds = grain_data_processing.get_datasets(
        f"{folder}/{NAMES[kind]}",
        kind,
        shuffle=True,
        shuffle_seed=3,
        shuffle_buffer_size=50,
        num_epoch=2,
        dataloading_host_index=host,
        dataloading_host_count=hosts,
        grain_worker_count=which.WORKERS,
        grain_num_threads=2,
        grain_prefetch_buffer_size=4,
        grain_data_source_max_workers=2,
        mixture_config_path=f"{folder}/mixture.json" if is_mixture else None,
    )
    prepare = grain_data_processing.pretrain_preprocessing_pipeline
    return prepare(ds, config, ["text"], False, which.WORKERS, 1)


def main() -> None:
    # Documents are tokens already.
    ids = SimpleNamespace(pad_id=0, unk_id=0, bos_id=1)
    data_processing_utils.tokenizer.build_tokenizer = lambda *_, **__: ids
    told: dict[str, Any] = {"grain": grain.__name__, "batches": {}, "count": 0, "resumed": True}
    with tempfile.TemporaryDirectory() as name:
        write(Path(name))
        for run in RUNS:
            ds = pipeline(Path(name), run)
            iterator, batches, states = iter(ds), [], []
            for batch in iterator:
                batches.append(jax.tree.map(np.array, batch))
                states.append(iterator.get_state())
            resumed = iter(ds)
            resumed.set_state(states[4])
            rest = [jax.tree.map(np.array, batch) for batch in resumed]
            leaves = jax.tree.leaves
            told["resumed"] &= which.digest(leaves(rest)) == which.digest(leaves(batches[5:]))
            told["batches"][str(run)] = which.digest(leaves(batches))
            told["count"] += len(batches)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
