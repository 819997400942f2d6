"""The user's program is never run again, and what it defines works in workers all the same."""

from pathlib import Path
from typing import Any

import pytest

from tests.thorough import THOROUGH, usually
from tests.workers.processes import linux, run, running, told

WAYS = ("file", "stdin", "-c")
every_way = pytest.mark.parametrize("way", WAYS)

_EVERYTHING = """
    from collections import namedtuple
    from dataclasses import dataclass

    with open("runs", "a") as runs:
        runs.write("x")

    offset = 7

    @dataclass
    class Point:
        x: int
        values: np.ndarray

    Named = namedtuple("Named", "point extra")

    def helper(number):
        return number + offset

    def to_point(number):
        return Point(helper(number), np.full(1000, number))

    class Wrap(bushel.transforms.Map):
        def map(self, element):
            return Named(element, {"class": type(element).__name__})

    class Source:
        def __len__(self):
            return 20
        def __getitem__(self, key):
            return key
        def __repr__(self):
            return "Source()"

    def make():
        scale = 3
        class Scaled(bushel.transforms.Map):
            def map(self, element):
                return element * scale
        return Scaled(), lambda number: number + scale

    scaled, shift = make()

    loader = bushel.DataLoader(
        data_source=Source(),
        sampler=bushel.IndexSampler(20, num_epochs=1),
        operations=[scaled, bushel.MapOperation(shift), bushel.MapOperation(to_point), Wrap()],
        worker_count=2,
    )
    found = list(loader)
    assert [named.point.x for named in found] == [3 * key + 3 + 7 for key in range(20)]
    assert all((named.point.values == named.point.x - 7).all() for named in found)
    assert {type(named) for named in found} == {Named}
    assert {type(named.point) for named in found} == {Point}
    assert {named.extra["class"] for named in found} == {"Point"}

    ds = MapDataset.source(Source()).map(lambda key: to_point(key)).to_iter_dataset()
    ds = ds.filter(lambda point: point.x % 2).map(lambda point: (point.x, type(point), os.getpid()))
    found = list(ds.mp_prefetch(workers(2)))
    assert [x for x, _, _ in found] == [x for x in range(7, 27) if x % 2]
    assert {kind for _, kind, _ in found} == {Point}
    assert os.getpid() not in {pid for _, _, pid in found}
    tell(done=True)
"""


@every_way
def test_a_program_without_a_guard(way: str, tmp_path: Path) -> None:
    assert told(tmp_path, _EVERYTHING, way) == {"done": True}
    assert (tmp_path / "runs").read_text() == "x"


@every_way
def test_modules_beside_the_program(way: str, tmp_path: Path) -> None:
    """What the program can import, its workers can, however it came to be importable."""
    (tmp_path / "beside.py").write_text("def triple(number):\n    return 3 * number\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "added.py").write_text("class Box(list):\n    pass\n")
    (tmp_path / "other").mkdir()
    answer = told(
        tmp_path,
        """
        sys.path.append(os.path.abspath("elsewhere"))
        import added, beside
        ds = MapDataset.range(9).map(beside.triple).map(lambda number: added.Box([number]))
        found = list(ds.to_iter_dataset().mp_prefetch(workers(2)))
        assert {type(box) for box in found} == {added.Box}
        tell(found=found)
        """,
        way,
    )
    assert answer == {"found": [[3 * number] for number in range(9)]}


def test_workers_stand_where_the_program_stands(tmp_path: Path) -> None:
    """Folder, environment and arguments."""
    (tmp_path / "deeper").mkdir()
    answer = told(
        tmp_path,
        """
        os.chdir("deeper")
        os.environ["SET_BY_THE_PROGRAM"] = "yes"
        ds = MapDataset.range(1).map(
            lambda _: [os.getcwd(), os.environ.get("SET_BY_THE_PROGRAM")]
        )
        tell(found=list(ds.to_iter_dataset().mp_prefetch(workers(1))))
        """,
    )
    assert answer == {"found": [[str(tmp_path / "deeper"), "yes"]]}


def test_a_package_run_as_a_module(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sibling.py").write_text("def twice(x):\n    return 2 * x\n")
    (package / "main.py").write_text(
        "from bushel import MapDataset, MultiprocessingOptions\n"
        "from .sibling import twice\n"
        "class Mine(int):\n    pass\n"
        "ds = MapDataset.range(5).map(twice).map(Mine).to_iter_dataset()\n"
        "found = list(ds.mp_prefetch(MultiprocessingOptions(num_workers=1)))\n"
        "assert {type(x) for x in found} == {Mine}, found\n"
        "print(found)\n"
    )
    answer = told(
        tmp_path,
        """
        import subprocess
        command = [sys.executable, "-m", "package.main"]
        done = subprocess.run(command, capture_output=True, text=True)
        tell(out=done.stdout, err=done.stderr)
        """,
    )
    assert answer == {"out": "[0, 2, 4, 6, 8]\n", "err": ""}


@pytest.mark.parametrize("way", usually(WAYS, "stdin"))
def test_prints_of_workers_are_seen(way: str, tmp_path: Path) -> None:
    text = """
        def chat(number):
            print(json.dumps({"out": number}))
            print("err", number, file=sys.stderr)
            os.write(1, b'{"raw": 1}\\n')
            return number
        ds = MapDataset.range(4).map(chat).to_iter_dataset()
        with iter(ds.mp_prefetch(workers(1))) as iterator:
            found = list(iterator)
        tell(found=found)
    """
    code, lines, err = run(tmp_path, text, way)
    assert code == 0
    for number in range(4):
        assert {"out": number} in lines
        assert f"err {number}" in err
    assert lines.count({"raw": 1}) == 4
    assert {"found": [0, 1, 2, 3]} in lines


@pytest.mark.parametrize(
    "closed", [(0, 1, 2), (1, 2), (0, 1), (1,), (2,)] if THOROUGH else [(0, 1, 2), (1,)], ids=str
)
def test_the_program_may_have_no_output_at_all(closed: tuple[int, ...], tmp_path: Path) -> None:
    """A daemon closes the three files that every program starts with."""
    text = f"""
        sys.stdout.flush()
        answer = os.open("answer", os.O_CREAT | os.O_WRONLY)
        for file in {closed}:
            os.close(file)

        def chat(number):
            print("heard by nobody", flush=True)
            print("heard by nobody", flush=True, file=sys.stderr)
            os.write(1, b"nor this")
            os.write(2, b"nor this")
            return np.full(1000, number)

        ds = MapDataset.range(50).map(chat).to_iter_dataset()
        found = [int(x.sum()) for x in ds.mp_prefetch(workers(2))]
        os.write(answer, json.dumps(found).encode())
        os._exit(0)
    """
    with running(tmp_path, text) as program:
        assert program.wait_for_exit() == 0
    assert (tmp_path / "answer").read_text() == str([1000 * x for x in range(50)])


_WITH_JAX = """
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax, jax.numpy as jnp

    def look(number):
        return np.full((64, 256), number, np.float32), "jax" in sys.modules

    kept, seen = [], set()
    ds = MapDataset.range(400).map(look).to_iter_dataset().mp_prefetch(workers(2))
    for number, (batch, has_jax) in enumerate(ds):
        seen.add(has_jax)
        if number % 8 == 0:
            kept += [(number, jnp.asarray(batch)), (number, jax.device_put(batch))]
            kept += [(number, jnp.from_dlpack(batch)), (number, jax.device_put({"x": batch})["x"])]
        del batch
    good = all((np.asarray(array) == number).all() for number, array in kept)
    tell(seen=sorted(seen), kept=len(kept), good=bool(good))
"""


def test_jax_stays_in_the_trainer_and_its_arrays_stay_valid(tmp_path: Path) -> None:
    answer = told(tmp_path, _WITH_JAX)
    assert answer == {"seen": [False], "kept": 200, "good": True}


def test_a_program_that_uses_jax_in_its_functions(tmp_path: Path) -> None:
    """It is imported where the function says so, and only the function's results travel."""
    answer = told(
        tmp_path,
        """
        def with_jax(number):
            import jax.numpy as jnp
            return np.asarray(jnp.arange(3) * number)
        os.environ["JAX_PLATFORMS"] = "cpu"
        ds = MapDataset.range(3).map(with_jax).to_iter_dataset()
        found = [x.tolist() for x in ds.mp_prefetch(workers(1))]
        tell(found=found, here="jax" in sys.modules)
        """,
    )
    assert answer == {"found": [[0, 0, 0], [0, 1, 2], [0, 2, 4]], "here": False}


@pytest.mark.parametrize("kind", ["a loader", "a stream"])
def test_workers_do_not_import_what_the_trainer_runs(kind: str, tmp_path: Path) -> None:
    """Neither what starts workers, nor the faces of the library."""
    text = f"""
        def look(_):
            there = ("dataset", "loader", "workers.pool", "workers.lowering", "workers.start")
            return [name for name in there if "bushel." + name in sys.modules]

        if {kind == "a stream"}:
            found = list(MapDataset.range(8).shuffle(seed=1).map(look).to_iter_dataset()
                .random_map(lambda x, rng: x, seed=1).filter(lambda x: True)
                .map(lambda x: [*x, *look(x)]).mp_prefetch(workers(1)))
        else:
            found = list(bushel.DataLoader(
                data_source=bushel.RangeDataSource(0, 8, 1),
                sampler=bushel.IndexSampler(8, shuffle=True, num_epochs=1, seed=1),
                operations=[bushel.MapOperation(look)],
                worker_count=1,
            ))
        tell(found=found)
    """
    assert told(tmp_path, text) == {"found": [[]] * 8}


@linux
def test_workers_are_light(tmp_path: Path) -> None:
    """A worker imports what the pipeline needs, not what the program has imported."""
    (tmp_path / "heavy.py").write_text("table = list(range(10))\n")
    answer: Any = told(
        tmp_path,
        """
        import heavy, unittest, xml.dom.minidom
        ds = MapDataset.range(1).map(
            lambda _: [m for m in ("heavy", "unittest", "xml.dom.minidom") if m in sys.modules]
        )
        tell(found=list(ds.to_iter_dataset().mp_prefetch(workers(1))))
        """,
    )
    assert answer == {"found": [[]]}


def test_classes_with_slots(tmp_path: Path) -> None:
    """Sent by value, they have their slots in a worker, and fit the program's when they return."""
    text = """
        class Base:
            __slots__ = ("left",)
            def __init__(self, left):
                self.left = left

        class Equal(Base):
            __slots__ = ("right", "__own")
            def __init__(self, left, right):
                super().__init__(left)
                self.right, self.__own = right, (left, right)
            def __eq__(self, other):
                return self.own() == other.own()
            def own(self):
                return self.__own

        class Open(Base):
            pass

        def make(number):
            made = Open(number)
            made.more = hasattr(Equal(1, 2), "__dict__")
            return Equal(number, np.arange(number)), made

        ds = MapDataset.range(4).map(make).to_iter_dataset().mp_prefetch(workers(1))
        equal, made = zip(*ds)
        tell(
            left=[one.left for one in equal],
            right=[len(one.right) for one in equal],
            own=[one.own()[0] for one in equal],
            classes=[type(equal[0]) is Equal, type(made[0]) is Open],
            open=[(one.left, one.more) for one in made],
        )
    """
    answer = told(tmp_path, text)
    assert answer["left"] == answer["right"] == answer["own"] == [0, 1, 2, 3]
    assert answer["classes"] == [True, True]
    assert answer["open"] == [[number, False] for number in range(4)]
