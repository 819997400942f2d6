"""What importing bushel costs: numpy, cloudpickle, and nothing else."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from bushel.sources import JsonLinesDataSource

ROOT = Path(__file__).parent.parent

# Optional, or not bushel's business at all. Each takes longer to import than bushel.
HEAVY = (
    "absl",
    "array_record",
    "grain",
    "jax",
    "jaxlib",
    "numpy.testing",
    "optree",
    "orbax",
    "pandas",
    "pyarrow",
    "ray",
    "scipy",
    "sklearn",
    "tensorflow",
    "tensorflow_datasets",
    "torch",
)

_NAME_ONLY = "import bushel"

_ALL_OF_IT = """
import bushel, bushel.python, bushel.grain.testing
from bushel import checkpoint, experimental, multiprocessing, sources, transforms
"""

_USE_OF_IT = """
import numpy as np
import bushel as grain

class Draw(grain.transforms.RandomMap):
    def random_map(self, element, rng):
        return {**element, "noise": rng.random()}

columns = {"x": np.arange(20), "y": np.zeros((20, 3))}
ds = grain.MapDataset.source(columns).seed(1).shuffle().random_map(Draw()).repeat(2).batch(4)
stream = iter(ds.to_iter_dataset().filter(lambda batch: batch["x"].sum() > 5))
next(stream)
stream.set_state(stream.get_state())
list(stream)
list(grain.load(columns, shuffle=True, seed=1, num_epochs=2, transformations=[Draw()]))
"""


# A program that resumes waits for every import, before it can even ask for workers.
_BUILT = """
from bushel import MapDataset
MapDataset.range(5).map(abs).shuffle(seed=1).to_iter_dataset().batch(2)
import bushel.loader.loader, bushel.workers.home
"""
# Of Python's own: for what few programs come to, and slower than most of bushel's modules.
SLOW = {"asyncio", "difflib", "hashlib", "lzma", "pathlib", "random", "tempfile", "urllib.parse"}


def _imported(program: str) -> set[str]:
    """The modules that are there after a program has run in an interpreter of its own."""
    return set(_printed(program))


def _printed(program: str) -> list[str]:
    """What a program prints, and then the modules that are there."""
    shown = f"import sys\n{program}\nprint(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT / 'src')!r})\n{shown}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.fixture(scope="module")
def bare() -> set[str]:
    """What an interpreter has anyway, with what numpy brings."""
    return _imported("import numpy")


@pytest.mark.parametrize(
    "program", [_NAME_ONLY, _ALL_OF_IT, _USE_OF_IT], ids=["import", "all of it", "use"]
)
def test_nothing_heavy_is_imported(program: str, bare: set[str]) -> None:
    imported = _imported(program)
    assert "bushel" in imported
    assert program is _NAME_ONLY or "bushel.loader.loader" in imported
    found = {
        name
        for name in imported - bare
        if any(name == h or name.startswith(h + ".") for h in HEAVY)
    }
    assert found == set()


def test_building_imports_nothing_slow(bare: set[str]) -> None:
    imported = _imported(_BUILT)
    assert "bushel.workers.early_nursery" in imported
    assert (imported - bare) & SLOW == set()


def test_a_file_whose_index_is_kept_imports_nothing_slow(bare: set[str], tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"text": "a"}\n' * 3)
    assert len(JsonLinesDataSource(str(path))) == 3  # And its index is beside it from now on.
    imported = _imported(
        "import bushel\n"
        f"source = bushel.sources.JsonLinesDataSource({str(path)!r})\n"
        "bushel.MapDataset.source(source).seed(1).shuffle().repeat().map(len).batch(2)"
    )
    slow = SLOW | {"bz2", "shutil", "concurrent.futures.thread", "numpy.random"}
    assert "bushel.sources.text.lines" in imported
    assert (imported - bare) & slow == set()


def test_third_parties_are_numpy_and_cloudpickle(bare: set[str]) -> None:
    """Whatever it is called: all else that is imported comes with Python."""
    added = {name.partition(".")[0] for name in _imported(_ALL_OF_IT) - bare}
    foreign = {name for name in added if name not in sys.stdlib_module_names}
    assert foreign - {"bushel"} <= {"cloudpickle", "numpy"}


# Which modules there are when a process is first started, and which when all is built.
_STARTED = """
import sys
at_start = []
def note(event, args):
    if event == "subprocess.Popen":
        at_start.append(set(sys.modules))
sys.addaudithook(note)
import bushel
{built}
print(*sorted(at_start[0]), sep='\\n')
print("all:")
"""
_BUILT_WITH_WORKERS = {
    "loader": """
loader = bushel.DataLoader(
    data_source=bushel.sources.RangeDataSource(0, 9, 1),
    sampler=bushel.samplers.IndexSampler(9, num_epochs=1, seed=1),
    operations=[bushel.transforms.Batch(2)],
    worker_count=2,
)""",
    "dataset": """
ds = bushel.MapDataset.range(9).shuffle(seed=1).map(abs).batch(2).to_iter_dataset()
ds = ds.mp_prefetch(bushel.MultiprocessingOptions(num_workers=2))""",
}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere none is started before it is needed")
@pytest.mark.parametrize("built", _BUILT_WITH_WORKERS)
def test_a_process_is_started_before_the_rest_is_imported(built: str) -> None:
    """A new interpreter takes longest of all that a first batch waits for."""
    modules = _printed(_STARTED.format(built=_BUILT_WITH_WORKERS[built]))
    at_start, later = modules[: modules.index("all:")], modules[modules.index("all:") + 1 :]
    assert "bushel.workers.launch" in at_start
    of_running = [name for name in at_start if name.startswith(_RUNNING)]
    assert of_running == []
    # And while it starts, what an iteration takes.
    assert {"bushel.deliver.iterator", "bushel.run.build", "bushel.workers.lowering"} <= set(later)


# What a dataset that is iterated takes, and one that is built does not.
_RUNNING = ("bushel.run.", "bushel.loader.iterator", "bushel.loader.chain", "bushel.deliver.open")


def test_a_worker_is_born_with_little(bare: set[str]) -> None:
    """All that a nursery imports delays the first batch of every program."""
    boot = "from bushel.workers.nursery import serve; from bushel.workers.program import main"
    imported = _imported(boot) - bare
    above = ("bushel.dataset", "bushel.loader", "bushel.deliver")
    above += (
        "bushel.files",
        "bushel.workers.pool",
        "bushel.workers.remote_streams",
        "bushel.workers.lowering",
    )
    assert [name for name in imported if name.startswith(above)] == []
    assert imported & (SLOW | {"json", "numpy.random", "subprocess"}) == set()


def test_what_is_sent_needs_no_masks() -> None:
    """numpy imports them when their name is used, in each worker before its first batch."""
    program = """
import io, numpy as np
from bushel.transport.exact import ValuePickler
ValuePickler(io.BytesIO(), protocol=5).dump([{"x": np.zeros(3)}, (np.float32(1), len), {2}])
"""
    assert "numpy.ma" not in _imported(program)


def test_mixtures_need_no_masks() -> None:
    """`np.unique` imports them, too: a third of the time to the first elements."""
    program = """
from itertools import islice
from bushel import IterDataset, MapDataset
parts = [MapDataset.range(10**6).shuffle(seed=i) for i in range(40)]
mixed = MapDataset.mix(parts).to_iter_dataset()
assert len(list(islice(mixed, 2000))) == 2000
streams = IterDataset.mix([part.to_iter_dataset() for part in parts])
assert len(list(islice(streams.batch(8), 200))) == 200
whole = MapDataset.concatenate(parts).shuffle(seed=1).to_iter_dataset()
assert len(list(islice(whole, 900))) == 900
"""
    assert "numpy.ma" not in _imported(program)


def test_files_on_this_machine_take_nothing_of_the_network() -> None:
    imported = _imported("import bushel.sources.text.lines, bushel.sources.tfrecord.source")
    assert "bushel.files.local" in imported
    network = {"bushel.files.remote", "bushel.files.stores", "http", "ssl", "urllib.request"}
    assert imported & (network | {"hashlib", "tempfile"}) == set()


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", text, maxsplit=1)[0] for text in requirements}


def _project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)["project"]  # type: ignore[no-any-return]


def test_installing_needs_numpy_and_cloudpickle() -> None:
    assert _names(_project()["dependencies"]) == {"numpy", "cloudpickle"}  # type: ignore[arg-type]


def test_the_extra_for_everything_leaves_out_torch() -> None:
    extras = _project()["optional-dependencies"]
    assert isinstance(extras, dict)
    (everything,) = extras["all"]
    named = set(everything.removeprefix("bushel[").removesuffix("]").split(","))
    for_make = {"all", "bench", "demo", "dev", "dist", "docs", "test"}
    assert named == set(extras) - for_make - {"ray", "torch", "trainer"}
