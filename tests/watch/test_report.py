"""Reports of runs: one page, written as a whole, read by people, by programs and by a browser."""

import dataclasses
import json
import os
import random
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import bushel
from bushel import MapDataset, ReadOptions
from bushel.deliver.figures import Figures
from bushel.deliver.run_history import MOST_LOOKS, RunHistory
from bushel.deliver.wait_history import MOST_COLUMNS, WaitColumn
from bushel.deliver.waits import Waits
from bushel.errors import FileError
from bushel.run.worker_figures import WorkerChange, WorkerFigures
from bushel.watch.course_picture import picture_of_course
from bushel.watch.report import RunSoFar, report_page, without_secrets
from bushel.watch.slow_table import SlowBlock, public, table_of_slow_blocks
from bushel.watch.wait_picture import picture_of_waits
from tests.browser import look_at, needs_browser, picture_of
from tests.thorough import slow
from tests.workers.guards import no_endless_wait, no_process_left_behind
from tests.workers.streams import make_loader, with_workers

__all__ = ["no_endless_wait", "no_process_left_behind"]

INLINE = ReadOptions(0, 0)
ATTACK = "</script><script>alert(1)</script>"


def attacking(element: Any) -> Any:
    return element


attacking.__name__ = ATTACK


def figures_in(page: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="figures">(.*?)</script>', page)
    values: dict[str, Any] = json.loads(text)
    return values


def a_run(path: Path, size: int = 300) -> Any:
    stream = MapDataset.range(size).shuffle(seed=1).map(attacking).batch(2)
    with bushel.iterate(stream.to_iter_dataset(INLINE)) as iterator:
        for _ in iterator:
            pass
        iterator.report(path)
        stats = iterator.stats()
    return stats


@pytest.mark.parametrize("count", [0, 1, 799, 800, 801, 1599, 1600, 1601, 12_345])
def test_waits_of_any_run_are_few_columns(count: int) -> None:
    chosen = random.Random(count)
    waits, lengths = Waits(), [chosen.random() for _ in range(count)]
    for number, seconds in enumerate(lengths):
        waits.add(0.0, seconds, 3 * number)
    columns = waits.history()
    assert len(columns) <= MOST_COLUMNS
    assert count < MOST_COLUMNS or len(columns) >= MOST_COLUMNS // 2
    assert len({column.waits for column in columns[:-1]}) <= 1
    taken = iter(lengths)
    at = 0
    for column in columns:
        part = [next(taken) for _ in range(column.waits)]
        at += len(part)
        assert (column.least, column.longest) == (min(part), max(part))
        assert column.total == pytest.approx(sum(part))
        assert column.elements == 3 * (at - 1)
    assert at == count


def test_picture_of_waits() -> None:
    columns = [WaitColumn(2, 0.001, 0.011, 0.01, 1), WaitColumn(2, 0.0, 1e-9, 1e-9, 3)]
    made = picture_of_waits(columns, 4)
    (mean,) = re.findall(r'<path d="([^"]*)" fill="none"', made)
    # Each column has half of the width.
    assert re.findall(r"[ML]([\d.]+) [\d.]+", mean) == ["60.0", "460.0", "460.0", "860.0"]
    assert "10 ms" in made and "4 elements" in made
    assert picture_of_waits([], 0) == ""


def test_it_is_one_file_that_needs_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    path.write_text("of yesterday")
    a_run(path)
    page = path.read_text()
    assert os.listdir(tmp_path) == ["run.html"]
    assert not re.search(r"https?:|src=|href=|url\(|@import|\son\w+=", page)
    assert "default-src 'none'" in page
    assert page.count("<script") == page.count("</script") == 1
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in page


def test_programs_can_read_it(tmp_path: Path) -> None:
    stats = a_run(tmp_path / "run.html")
    values = figures_in((tmp_path / "run.html").read_text())
    told = stats.to_dict()
    assert [step["records"] for step in values["steps"]] == [
        step["records"] for step in told["steps"]
    ]
    assert values["steps"][2]["name"] == f"map({ATTACK})"
    assert values["elements"] == 150
    assert values["about"]["bushel"] == bushel.__version__
    assert sum(values["waits"]["total"]) == pytest.approx(values["wait_seconds"])
    assert len(values["waits"]["least"]) == len(values["waits"]["elements"]) > 1


def test_before_the_first_element_and_after_the_last(tmp_path: Path) -> None:
    iterator = iter(MapDataset.range(10))
    iterator.report(tmp_path / "a.html")
    text = (tmp_path / "a.html").read_text()
    assert "Nothing was asked for yet." in text and "bushel.iterate(dataset, stats=True)" in text
    assert len(list(iterator)) == 10
    iterator.close()
    iterator.report(str(tmp_path / "b.html"))
    assert figures_in((tmp_path / "b.html").read_text())["elements"] == 10


def test_of_workers_and_loaders(tmp_path: Path) -> None:
    with bushel.iterate(with_workers(MapDataset.range(100).map(abs).batch(4), 2)) as iterator:
        assert len(list(iterator)) == 25
        iterator.report(tmp_path / "workers.html")
    page = (tmp_path / "workers.html").read_text()
    assert "2 workers, busy" in page
    assert figures_in(page)["workers"][0]["workers"] == 2
    with bushel.iterate(make_loader(bushel.transforms.Batch(10), workers=0)) as loaded:
        assert len(list(loaded)) == 6
        loaded.report(tmp_path / "loader.html", private=False)
    assert figures_in((tmp_path / "loader.html").read_text())["elements"] == 6


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    iterator = iter(MapDataset.range(10))
    with pytest.raises(FileError, match=r"there is no folder .*/no' to write 'run.html' in"):
        iterator.report(tmp_path / "no" / "run.html")
    with pytest.raises(FileError, match="is a folder: a report is a file"):
        iterator.report(tmp_path)
    with pytest.raises(FileError, match="is a folder"):
        iterator.report(f"{tmp_path}/")
    for nowhere in ("/proc/run.html", tmp_path / ("x" * 300)):
        with pytest.raises(FileError, match="a report cannot be written to"):
            iterator.report(nowhere)
    with pytest.raises(TypeError):
        iterator.report(3)  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


SECRET = "https://me:s3cret@host:80/a/b.jsonl?X-Signature=s3cret&b=s3cret"


def test_secrets_of_addresses_are_left_out(tmp_path: Path) -> None:
    def named(element: int) -> int:
        return element

    paths = [tmp_path / "private.html", tmp_path / "open.html"]
    for name in (SECRET, f"'{SECRET}'", f'"{SECRET}"', f"<{SECRET}>", f"({SECRET}, 1)"):
        named.__name__ = name
        with bushel.iterate(MapDataset.range(3).map(named)) as iterator:
            assert list(iterator) == [0, 1, 2]
            iterator.report(paths[0])
            iterator.report(paths[1], private=False)
        page = paths[0].read_text()
        assert "s3cret" not in page and "https://host:80/a/b.jsonl?..." in page
        assert figures_in(page)["elements"] == 3
        assert page.count("</table>") == page.count("<table>")
        assert "s3cret" in paths[1].read_text()


def test_queries_of_addresses_with_blanks_are_left_out() -> None:
    block = SlowBlock("map", "here", 1.0, 0, "source", 3, "https://host/a b<c>?k=s3cret")
    for private in (True, False):
        for made in (table_of_slow_blocks([block], private), json.dumps(public(block, private))):
            assert ("s3cret" not in made) is private
            assert "a b" in made


def test_other_texts_are_left_as_they_are() -> None:
    for text in ("/data/a?b.jsonl", "what://", "a@b.c", "s3://bucket/a@b/c.parquet", "x ? y : z"):
        assert without_secrets(text) == text


def test_of_a_long_run_it_is_small() -> None:
    waits = Waits()
    for number in range(200_000):
        waits.add(0.0, 1e-6 * (1 + number % 1000), number)
    iterator = iter(MapDataset.range(10))
    history = RunHistory()
    for number in range(20_000):
        pools = (changed_pool(POOL, workers=number % 4, deaths=number // 9),)
        history.add(figures_at(number / 2, pools, (f"{number % 7} threads",)))
    run = RunSoFar(iterator.stats(), iterator.explain(), waits.history(), history)
    page = report_page(run)
    assert len(page) < 300_000
    assert "events before these are not shown" in page


POOL = WorkerFigures(2, 0, 0.0, 0.0, 0, 0, 0, 0)


def changed_pool(pool: WorkerFigures, **others: Any) -> WorkerFigures:
    return dataclasses.replace(pool, **others)


def figures_at(
    seconds: float, pools: tuple[WorkerFigures, ...] = (), threads: tuple[str, ...] = ()
) -> Figures:
    return Figures(round(10 * seconds), seconds, seconds / 4, 1, 1, 0.0, -1, (), threads, pools, 3)


def test_the_course_of_any_run_is_few_looks() -> None:
    history = RunHistory()
    for number in range(5_000):
        history.add(figures_at(0.5 * number))
        looks = history.looks
        assert len(looks) < MOST_LOOKS
        assert looks[0].seconds == 0.0
        assert number < 3 or len(looks) >= min(number, MOST_LOOKS) // 4
    spaces = {round(two.seconds - one.seconds, 3) for one, two in pairwise(looks[:-1])}
    assert max(spaces) <= 4 * min(spaces)


def test_what_changed_in_the_course_of_a_run_is_told_once() -> None:
    history = RunHistory()
    change = WorkerChange(0.8, 7, "workers", 1, 2, "the loop waited")
    tuned = changed_pool(POOL, changes=(change,))
    history.add(figures_at(0.0, (POOL,), ("inline",)))
    history.add(figures_at(1.0, (tuned,), ("inline",)))
    history.add(figures_at(2.0, (tuned,), ("2 threads",)))
    history.add(figures_at(3.0, (changed_pool(tuned, deaths=2),), ("2 threads",)))
    history.add(figures_at(4.0, (changed_pool(tuned, deaths=2),), ("2 threads",)))
    assert [(one.seconds, one.what, one.text) for one in history.events] == [
        (0.0, "threads", "inline"),
        (1.0, "workers", "1 -> 2: the loop waited"),
        (2.0, "threads", "2 threads"),
        (3.0, "deaths", "2 ended and were replaced, 2 in all"),
    ]
    made = picture_of_course(history)
    assert made.count('class="event"') == 4
    assert "workers were busy" in made and "blocks ready" in made


def a_run_over_files(folder: Path, workers: int) -> Any:
    lines = "".join(f'{{"id": {number}}}\n' for number in range(40))
    (folder / "a.jsonl").write_text(lines)
    dataset = MapDataset.source(bushel.open(str(folder / "a.jsonl"))).shuffle(seed=3)
    dataset = dataset.map(number_of).batch(2)
    return with_workers(dataset, workers) if workers else dataset.to_iter_dataset(INLINE)


def number_of(element: Any) -> Any:
    return element["id"] + sum(range(3000)) * 0


@pytest.mark.parametrize("workers", [0, 2])
def test_the_slowest_blocks_are_told_by_their_records(workers: int, tmp_path: Path) -> None:
    stream = a_run_over_files(tmp_path, workers)
    with bushel.iterate(stream) as iterator:
        batches = [batch.tolist() for batch in iterator]
        iterator.report(tmp_path / "run.html")
        iterator.report(tmp_path / "keys.html", private=False)
    slowest = figures_in((tmp_path / "run.html").read_text())["slow_blocks"]
    assert [block["seconds"] for block in slowest] == sorted(
        (block["seconds"] for block in slowest), reverse=True
    )
    of_map = [block for block in slowest if block["step"] == "map(number_of)"]
    assert of_map
    content = (tmp_path / "a.jsonl").read_bytes()
    ids = [one for batch in batches for one in batch]
    for block in of_map:
        # Blocks are known by the positions of the step, tasks by those of batches.
        first = ids[block["at"]] if not workers else batches[block["at"]][0]
        assert block["file"].endswith("a.jsonl") and block["record"] == first
        assert content[block["start"] : block["stop"]].split() == [b'{"id":', b"%d}" % first]
        assert "key" not in block
    with_keys = figures_in((tmp_path / "keys.html").read_text())["slow_blocks"]
    assert [block["key"] for block in with_keys] == [block["record"] for block in slowest]


@pytest.mark.parametrize("place", [(1.5, 2, 3, 4), ("a", object(), None, None), ("a",), None])
def test_slow_blocks_of_a_source_that_tells_nonsense(place: Any, tmp_path: Path) -> None:
    class OddSource:
        def __len__(self) -> int:
            return 9

        def __getitem__(self, key: int) -> int:
            return key

        def place_of(self, key: int) -> Any:
            return place

    with bushel.iterate(MapDataset.source(OddSource()).map(abs)) as iterator:
        assert len(list(iterator)) == 9
        iterator.report(tmp_path / "run.html")
    assert figures_in((tmp_path / "run.html").read_text())["elements"] == 9


def test_slow_blocks_of_what_is_not_known(tmp_path: Path) -> None:
    stream = MapDataset.range(50).to_iter_dataset(INLINE).filter(bool).map(abs).batch(3)
    with bushel.iterate(stream) as iterator:
        assert len(list(iterator)) == 17
        iterator.report(tmp_path / "run.html")
    told = figures_in((tmp_path / "run.html").read_text())["slow_blocks"]
    # What comes after the filter is known by no position.
    assert {block["step"] for block in told} <= {"range(0, 50, 1)"}


@needs_browser
@pytest.mark.parametrize("dark", [pytest.param(False, marks=slow), True])
def test_in_a_browser(dark: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.html"
    stats = a_run(path)
    seen = look_at(path, 800, dark)
    assert seen.fetched == []
    shares = [step for step in stats.steps if step.share]
    # A bar for each step; and the line and the area of the waits, with a line for each height.
    strips = len(re.findall("<title>[^<]*: (?:here|workers)</title>", seen.html)) + 1
    legends = len(re.findall("(?:the loop waited|blocks ready)</text>", seen.html))
    assert seen.count("rect") == len(shares) + strips + legends
    assert seen.count("path") >= 4 and seen.count("svg") in (3, 4)
    assert "Slowest blocks" in seen.text and "range(0, 300, 1)" in seen.text
    assert ATTACK in seen.text
    assert "Your loop waited" in seen.text and "X-Signature" not in seen.text
    assert seen.width <= 800
    light, ink = (sum(map(int, re.findall(r"\d+", one))) for one in (seen.background, seen.color))
    assert (light < ink) is dark
    picture = picture_of(path, 800, dark)
    assert picture.shape[1] == 800
    assert bool(picture.mean() < 128) is dark
    assert picture.std() > 10
