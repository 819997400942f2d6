"""Who imports whom: files import from the rows below them and from their own package."""

import ast
import functools
import sys
from pathlib import Path

import bushel

PACKAGE = Path(bushel.__file__).parent

ROWS = (
    ("__main__",),
    ("cli",),
    ("__init__",),
    ("python", "multiprocessing", "monitoring"),
    ("experimental",),
    ("huggingface", "keras"),
    ("torch",),
    ("write",),
    ("provenance",),
    ("grain", "loader"),
    ("dataset",),
    ("watch",),
    ("deliver",),
    ("workers",),
    ("run",),
    ("transport", "cache", "on_error", "samplers"),
    ("checkpoint",),
    ("lanes",),
    ("batch",),
    ("order",),
    ("sources", "transforms"),
    ("files",),
    ("core", "sharding"),
    ("errors", "constants"),
)
ROW_OF = {unit: number for number, row in enumerate(ROWS) for unit in row}

# What the package needs; everything else is optional.
CORE = {"numpy", "cloudpickle"}
# The one file that may import an optional dependency.
OPTIONAL = {
    "PIL": "core/pillow.py",
    "array_record": "sources/array_record.py",
    "bagz": "sources/bagz.py",
    "boto3": "files/aws.py",
    "botocore": "files/aws.py",
    "datasets": "huggingface/to_datasets.py",
    "cv2": "transforms/jpeg_decoders.py",
    "fsspec": "files/systems.py",
    "google": "sources/tfrecord/varints.py",  # protobuf
    "google_crc32c": "sources/tfrecord/crc.py",
    "jax": "deliver/device.py",
    "keras": "keras/data_adapter.py",
    "cramjam": "sources/shard_folder/unpacked_shards.py",
    "lance": "sources/lance.py",
    "ml_dtypes": "core/dtypes.py",
    "obstore": "files/stores.py",
    "opentelemetry": "watch/own_metrics.py",
    "orbax": "checkpoint/orbax.py",
    "prometheus_client": "watch/own_metrics.py",
    "pyarrow": "sources/arrow/package.py",
    "ray": "workers/cluster/ray_cluster.py",
    "simplejpeg": "transforms/jpeg_decoders.py",
    "tensorflow": "keras/data_adapter.py",
    "torch": "torch/tensors.py",
    "yaml": "sources/energon.py",
    "transformers": "huggingface/trainer.py",
    "zarr": "sources/arrays/zarr.py",
    "zstandard": "sources/indexed_unpacked.py",
}
# Imports within functions, with what they are for.
LAZY = {
    ("core/arguments.py", "difflib"): "only for those who are mistaken",
    ("errors.py", "inspect"): "the same",
    ("dataset/stream.py", "bushel.dataset.random_access"): "the same; it imports this module",
    ("dataset/random_access.py", "bushel.deliver.failed_record"): "only where a record fails",
    ("grain/execution_summary.py", "bushel.watch.stats"): "only for those who ask for a summary",
    ("deliver/device.py", "jax"): "an optional dependency",
    ("torch/tensors.py", "torch"): "an optional dependency",
    ("huggingface/to_datasets.py", "datasets"): "an optional dependency",
    ("huggingface/trainer.py", "transformers"): "an optional dependency, base of its classes",
    ("huggingface/trainer.py", "transformers.trainer_callback"): "the same",
    ("keras/data_adapter.py", "keras"): "an optional dependency, base of its classes",
    ("keras/data_adapter.py", "keras.src.trainers"): "the same",
    ("keras/data_adapter.py", "keras.src.trainers.data_adapters"): "the same",
    ("keras/data_adapter.py", "keras.src.trainers.data_adapters.data_adapter"): "the same",
    ("keras/data_adapter.py", "tensorflow"): "for those who have Keras compute with it",
    ("checkpoint/orbax.py", "orbax.checkpoint"): "an optional dependency, base of its classes",
    ("checkpoint/orbax.py", "bushel.deliver.device"): "the way to jax, as for sharding.py",
    ("watch/own_metrics.py", "prometheus_client.core"): "an optional dependency",
    ("watch/own_metrics.py", "opentelemetry.metrics"): "an optional dependency",
    ("run/thread_time.py", "resource"): "not on every system",
    ("sources/array_record.py", "array_record.python"): "an optional dependency",
    ("sources/arrow/package.py", "pyarrow"): "an optional dependency",
    ("sources/arrow/package.py", "pyarrow.parquet"): "an optional dependency",
    ("sources/memory.py", "bushel.sources.huggingface"): "only for those with such datasets",
    ("sources/bagz.py", "bagz"): "an optional dependency",
    ("sources/energon.py", "yaml"): "an optional dependency",
    ("sources/shard_folder/unpacked_shards.py", "cramjam"): "an optional dependency",
    ("core/pillow.py", "PIL"): "an optional dependency",
    ("transforms/jpeg_decoders.py", "cv2"): "an optional dependency",
    ("transforms/jpeg_decoders.py", "simplejpeg"): "an optional dependency",
    ("sources/lance.py", "lance"): "an optional dependency",
    ("core/dtypes.py", "ml_dtypes"): "an optional dependency",
    ("sources/arrays/zarr.py", "zarr"): "an optional dependency",
    ("sources/tfrecord/crc.py", "google_crc32c"): "an optional dependency",
    ("sources/tfrecord/varints.py", "google.protobuf"): "an optional dependency",
    ("sources/indexed_unpacked.py", "zstandard"): "an optional dependency",
    ("sharding.py", "bushel.deliver.device"): "the way to jax, asked only when it is wanted",
    ("deliver/device.py", "jax._src"): "the notes that processes of a job leave each other",
    ("cache/cache.py", "bushel.cache.disk"): "files and their checks, for those who want one",
    ("deliver/open.py", "bushel.workers.lowering"): "processes, only for those who want them",
    ("deliver/open.py", "bushel.workers.home"): "the same",
    ("deliver/open.py", "bushel.workers.start"): "and first of all what takes them longest",
    ("deliver/open.py", "bushel.run.build"): "building a dataset takes none of what runs it",
    ("dataset/in_workers.py", "bushel.deliver.early_workers"): "only for those who want processes",
    ("dataset/stream.py", "bushel.deliver.open"): "building a dataset takes none of what runs it",
    ("dataset/steps.py", "bushel.deliver.open"): "the same",
    ("dataset/random_access.py", "bushel.run.inline"): "the same",
    ("dataset/base.py", "bushel.watch.explain"): "only for those who look",
    ("dataset/base.py", "bushel.write.write_job"): "only for those who write, and it stands above",
    ("sources/written/source.py", "bushel.sources.formats"): "it names that module",
    ("sources/written/source.py", "bushel.files.uploads"): "only for those with such paths",
    ("write/target_folder.py", "bushel.write.far_folder"): "the same",
    ("loader/loader.py", "bushel.watch.explain"): "the same",
    ("deliver/iterator.py", "bushel.deliver.handed_out"): "only for those who count",
    ("deliver/iterator.py", "bushel.watch.explain"): "the same, and it stands above",
    ("deliver/open.py", "bushel.watch.visualize"): "only where a setting asks for it",
    ("deliver/iterator.py", "bushel.watch.explanation"): "the type of what that returns",
    ("deliver/iterator.py", "bushel.watch.stats"): "only for those who look, and it stands above",
    ("deliver/iterator.py", "bushel.provenance.report_on"): "the same",
    ("deliver/iterator.py", "bushel.deliver.failed_record"): "only for elements that fail",
    ("deliver/iterator.py", "bushel.deliver.run_history"): "the type of what is told there",
    ("deliver/iterator.py", "bushel.watch.trace"): "the same",
    ("deliver/open.py", "bushel.watch.debug"): "only where a setting asks for it",
    ("deliver/timed.py", "bushel.watch.stats"): "it stands above; before the first element",
    ("deliver/open.py", "bushel.deliver.timed"): "for those who have the steps counted",
    ("dataset/base.py", "bushel.deliver.open"): "to build a dataset takes none of what runs it",
    ("dataset/stream.py", "bushel.order.stream_mix"): "only for those with such mixtures",
    ("dataset/parts.py", "bushel.run.compact"): "the same, and this runs it at once",
    ("dataset/stream.py", "bushel.batch.unbatch"): "workers start sooner; few have such a step",
    ("dataset/parts.py", "bushel.batch.unbatch"): "the same",
    ("dataset/stream.py", "bushel.order.windows"): "the same",
    ("dataset/parts.py", "bushel.order.windows"): "the same",
    ("dataset/stream.py", "bushel.order.skip_steps"): "the same",
    ("dataset/stream.py", "bushel.cache.cache"): "the same",
    ("dataset/steps.py", "bushel.order.interleave"): "the same",
    ("dataset/steps.py", "bushel.order.stream_shuffle"): "the same",
    ("dataset/in_workers.py", "bushel.core.ray_options"): "only for those with a cluster",
    ("dataset/lengths.py", "bushel.batch.pack_strategies"): "much to import, for those who pack",
    ("dataset/lengths.py", "bushel.batch.batch_by_tokens"): "the same",
    ("dataset/lengths.py", "bushel.batch.buckets"): "the same",
    (
        "loader/loader.py",
        "bushel.deliver.early_workers",
    ): "processes, for those who want some, first",
    ("loader/loader.py", "bushel.loader.chain"): "and while they start, the rest",
    ("loader/loader.py", "bushel.loader.iterator"): "building a loader takes none of what runs it",
    ("deliver/early_workers.py", "bushel.deliver.open"): "while the first process starts",
    ("deliver/early_workers.py", "bushel.run.build"): "the same",
    ("deliver/early_workers.py", "bushel.workers.lowering"): "the same",
    ("deliver/early_workers.py", "bushel.workers.pool"): "the same",
    ("workers/home.py", "bushel.workers.pool"): "made with the dataset, long before there is one",
    ("workers/home.py", "bushel.workers.payload"): "the same",
    ("workers/home.py", "bushel.workers.cluster.pool"): "only for those with a cluster",
    ("workers/home.py", "bushel.workers.cluster.joint_pool"): "only for those with a cluster",
    ("workers/home.py", "bushel.workers.cluster.ray_cluster"): "the same",
    ("workers/home.py", "bushel.checkpoint.code_and_files"): "the same",
    ("workers/cluster/ray_cluster.py", "ray"): "an optional dependency",
    ("workers/cluster/ray_cluster.py", "ray.exceptions"): "an optional dependency",
    ("workers/cluster/ray_cluster.py", "ray.util.scheduling_strategies"): "and a part of it",
    (
        "files/local.py",
        "bushel.files.remote",
    ): "the way to stores, only for those with such paths",
    ("files/paths.py", "bushel.files.backend"): "and the same for their names",
    ("files/copies.py", "bushel.files.remote"): "and for those that are copied",
    ("files/copies.py", "hashlib"): "it loads a library of cryptography",
    ("files/index.py", "hashlib"): "the same",
    ("files/evict.py", "shutil"): "it loads the libraries of compressed files",
    ("sources/indexed_unpacked.py", "bz2"): "a library, only for those with such files",
    ("sources/indexed_unpacked.py", "lzma"): "the same",
    ("files/request_pool.py", "concurrent.futures"): "threads, only for those with such paths",
    ("sources/parallel_search.py", "concurrent.futures"): "threads, only where a file is searched",
    ("sources/indexed.py", "concurrent.futures"): "threads, only for several files",
    ("files/aws.py", "boto3"): "an optional dependency",
    ("files/aws.py", "botocore.exceptions"): "an optional dependency",
    ("files/backend.py", "bushel.files.beside"): "much to import, only for those with such paths",
    ("files/stores.py", "obstore"): "an optional dependency",
    ("files/stores.py", "obstore.exceptions"): "an optional dependency",
    ("files/stores.py", "obstore.fsspec"): "an optional dependency",
    ("files/stores.py", "obstore.store"): "an optional dependency",
    ("files/systems.py", "fsspec"): "an optional dependency",
    ("files/systems.py", "fsspec.config"): "an optional dependency",
    ("deliver/saving.py", "asyncio"): "much to import, and whoever comes here has it already",
    ("deliver/saving.py", "bushel.checkpoint.folders"): "paths and JSON, for those who save",
    ("loader/iterator.py", "bushel.checkpoint.folders"): "the same",
    ("checkpoint/differences.py", "difflib"): "only where a state does not fit",
    ("checkpoint/signed.py", "bushel.checkpoint.packed_lines"): "only for long pipelines",
    ("files/paths.py", "difflib"): "only where a file is missing",
    ("core/fingerprint.py", "hashlib"): "it loads a library of cryptography",
    ("core/altered.py", "dis"): "only where a state is asked for",
    ("core/code_used.py", "dis"): "the same",
    (
        "on_error/quarantine.py",
        "json",
    ): "where a bad record is written down, and not in every worker",
    ("files/beside.py", "multiprocessing.managers"): "much to import, for a forked process",
    ("files/beside.py", "secrets"): "the same",
    (
        "core/memory_file.py",
        "tempfile",
    ): "much to import, and where there is memfd_create, for nothing",
}

FILES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))


@functools.cache
def _tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text())


@functools.cache
def _imports(file: str) -> list[tuple[str, ast.stmt]]:
    """Every module that a file imports, wherever it does."""
    found: list[tuple[str, ast.stmt]] = []
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.Import):
            found += [(alias.name, node) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file}: relative import"
            assert node.module is not None
            if node.module == "bushel":
                found += [(f"bushel.{alias.name}", node) for alias in node.names]
            else:
                found.append((node.module, node))
    return found


def _only_for_types(tree: ast.Module) -> set[ast.stmt]:
    """The statements below `if TYPE_CHECKING`."""
    return {
        inner
        for block in tree.body
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for inner in ast.walk(statement)
        if isinstance(inner, ast.stmt)
    }


def _unit(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def test_every_file_has_a_row() -> None:
    assert [file for file in FILES if _unit(file) not in ROW_OF] == []


def test_imports_point_down() -> None:
    upward = []
    for file in FILES:
        for module, node in _imports(file):
            if not module.startswith("bushel.") or (file, module) in LAZY:
                continue
            imported, unit = module.split(".")[1], _unit(file)
            assert imported in ROW_OF, f"{file}:{node.lineno} imports the unknown {module}"
            if ROW_OF[imported] <= ROW_OF[unit] and imported != unit:
                upward.append(f"{file}:{node.lineno} imports {module}, not below it")
    assert upward == []


def test_imports_are_at_the_top() -> None:
    inner = []
    for file in FILES:
        if file == "__init__.py":
            continue  # Public names are loaded when they are first used.
        tree = _tree(file)
        lines = {statement.lineno for statement in tree.body}
        lines |= {statement.lineno for statement in _only_for_types(tree)}
        for module, node in _imports(file):
            if node.lineno not in lines and (file, module) not in LAZY:
                inner.append(f"{file}:{node.lineno} imports {module} in a function")
    assert inner == []


def test_optional_dependencies_have_one_door_each() -> None:
    others = []
    for file in FILES:
        tree = _tree(file)
        for_types = {statement.lineno for statement in _only_for_types(tree)}
        for module, node in _imports(file):
            name = module.split(".")[0]
            if name == "bushel" or name in CORE or name in sys.stdlib_module_names:
                continue
            if node.lineno in for_types:
                continue
            if OPTIONAL.get(name) != file or node in tree.body:
                others.append(f"{file}:{node.lineno} imports {name}")
    assert others == []


def test_the_exceptions_are_still_needed() -> None:
    found = {(file, module) for file in FILES for module, _ in _imports(file)}
    assert set(LAZY) <= found
    doors = {(file, module.split(".")[0]) for file, module in found}
    assert {(door, name) for name, door in OPTIONAL.items()} <= doors


def test_the_design_has_this_table() -> None:
    table = "\n".join("   ".join(row) for row in ROWS)
    text = (PACKAGE.parent.parent / "docs" / "design.md").read_text()
    assert f"```\n{table}\n```" in text, f"write this into docs/design.md:\n{table}"


def test_the_tree_of_the_readme_is_the_one_on_disk() -> None:
    """Each folder has a line of its own, and none is drawn that is not there."""
    text = (PACKAGE.parent.parent / "README.md").read_text()
    _, _, after = text.partition("\nsrc/bushel/\n")
    drawn = [line.split()[0] for line in after.partition("```")[0].splitlines()]
    names = {name.strip(",/") for name in drawn if "/" in name}  # Beside them stand some files.
    there = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    assert names == there, sorted(names ^ there)
