"""`replace_grain`: libraries that import Grain have bushel, once and whole."""

import subprocess
import sys
from pathlib import Path

import bushel

PROGRAM = """
import sys
import bushel
bushel.replace_grain()
bushel.replace_grain()
import grain, grain.transforms
from grain import python as older
from grain.experimental import ElasticIterator
import grain.python.experimental as older_experimental
import grain.samplers as samplers
assert grain is bushel and older.MapDataset is bushel.MapDataset
assert grain.transforms.Map is older.MapTransform is bushel.transforms.Map
assert samplers is bushel.samplers and ElasticIterator is bushel.experimental.ElasticIterator
assert older_experimental is bushel.python.experimental
assert bushel.samplers.__spec__.name == "bushel.samplers" and bushel.__spec__.name == "bushel"
assert list(grain.MapDataset.range(3).map(lambda x: x + 1)) == [1, 2, 3]
for name in ("grain._src", "grain.run", "grain.proto"):
    try:
        __import__(name)
    except ModuleNotFoundError as error:
        assert "bushel is in Grain's place" in str(error), error
    else:
        raise AssertionError(name)
twice = [name for name in sys.modules if name.startswith("grain") and
         sys.modules[name].__name__.split(".")[0] != "bushel"]
assert not twice, twice
print("once and whole")
"""

IN_WORKERS = """
import sys, tempfile, pathlib
import bushel
bushel.replace_grain(stand_ins=["grain._src.deep.inside"])
folder = tempfile.mkdtemp()
pathlib.Path(folder, "library.py").write_text('''
import grain.python as grain
from grain._src.deep.inside import _Reader
class Own(_Reader):
    pass
class Tell(grain.MapTransform):
    def map(self, element):
        return f"{grain.__name__} {grain.MapTransform.__module__}"
''')
sys.path.insert(0, folder)
import library
ds = bushel.MapDataset.range(4).map(library.Tell()).to_iter_dataset()
with iter(ds.mp_prefetch(bushel.MultiprocessingOptions(num_workers=1))) as iterator:
    print(*set(iterator))
try:
    library.Own("file")
except ImportError as error:
    assert "grain._src.deep.inside._Reader is private to Grain" in str(error)
else:
    raise AssertionError
"""

TOO_LATE = """
import sys, types
sys.modules["grain.python"] = types.ModuleType("grain.python")
import bushel
try:
    bushel.replace_grain()
except ImportError as error:
    print(error)
"""


def run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(Path(bushel.__file__).parent.parent)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_grain_is_bushel() -> None:
    assert "once and whole" in run(PROGRAM)


def test_workers_have_it_too() -> None:
    assert run(IN_WORKERS).strip() == "bushel.python bushel.transforms.base"


def test_it_comes_first() -> None:
    assert "`grain.python` is imported already" in run(TOO_LATE)
