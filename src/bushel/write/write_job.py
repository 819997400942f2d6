"""`ds.write`: its arguments, how many shards, the run with many processes, the manifest."""

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from bushel.checkpoint.code_and_files import made_with
from bushel.checkpoint.signed import describe_pipeline
from bushel.core.arguments import whole
from bushel.core.machine import available_cores
from bushel.core.node import Guard, Node, walk
from bushel.core.ray_options import RayOptions
from bushel.dataset.base import Dataset
from bushel.dataset.random_access import MapDataset, map_node
from bushel.errors import BadRecordsError, FileError, PlanError, add_note
from bushel.files.paths import is_remote
from bushel.order.repeat import INFINITE
from bushel.provenance.walk import length_of
from bushel.provenance.where import ENDLESS
from bushel.sources.written.coding import coding_of
from bushel.sources.written.element_layout import ElementLayout, MisfitError, layout_of
from bushel.sources.written.manifest import Manifest, WrittenShard, manifest_from, shard_from
from bushel.sources.written.shard_names import extra_shards
from bushel.sources.written.source import check_files
from bushel.workers import early_nursery
from bushel.workers.home import Home
from bushel.write.encoder import cannot_be_written
from bushel.write.file_formats import FILE_FORMATS, file_format
from bushel.write.in_order import SHARD_BYTES, size_of, write_stream
from bushel.write.origin_columns import can_be_traced, sources_told, why_unknown
from bushel.write.shard import WriteShard, threads_may_pay
from bushel.write.shard_counts import shared_counts, shown
from bushel.write.target_folder import Folder, folder_of
from bushel.write.tasks import by_workers
from bushel.write.write_plan import COMPARED, WritePlan, differences, read_plan

# Elements that are examined to find their fields.
_LOOKED_AT = 16
# A shard is the work that is lost if a process is killed, and that others wait for at the end. So
# there are several even for little data, unless it is tiny.
_FEW_SHARDS, _FEW_RECORDS = 16, 256
# With so many shards per worker, a wrong choice in the first one costs little.
_MANY_SHARDS = 4
# More files than a folder should have; a manifest has a few hundred bytes for each.
_MOST_SHARDS = 1_000_000


def write(
    ds: Dataset[Any],
    to: str | os.PathLike[str],
    *,
    format: str | None = None,
    shards: int | None = None,
    shard_records: int | None = None,
    workers: int | RayOptions | None = None,
    on_error: str = "raise",
    overwrite: bool = False,
    json_fields: Iterable[str] = (),
    origins: bool | str = True,
    progress: bool | None = None,
) -> Manifest:
    """Writes a dataset to shards: `ds.write(...)`, which has the full documentation."""
    path = _pattern(_path(to), format)
    folder = folder_of(path)
    file_format(folder.pattern, format)
    names = _names(json_fields)
    job = _WriteJob(ds, folder, format, shards, shard_records, on_error, names, origins)
    if workers is None:
        workers = available_cores()
    elif not isinstance(workers, RayOptions) and whole(workers, "workers") < 0:
        raise PlanError(f"`workers` is a number of processes, and cannot be {workers}.")
    home = Home()
    if isinstance(workers, int) and workers:
        # It starts while elements are examined and the plan is written.
        early_nursery.expect(home)
    with folder.alone():
        done = job.settle(overwrite)
        if done is not None:
            folder.remove_folder(folder.work)
            return done
        assert job.plan is not None
        if job.plan.told["layout"] is None:
            shards_made: Sequence[WrittenShard] = ()
        elif job.is_stream:
            shards_made, job.untraced = write_stream(ds, job.plan, folder, workers, progress)
        else:
            shards_made = job.write_shards(workers, progress)
        manifest = job.finish(shards_made)
        folder.remove_folder(folder.work)
        return manifest


def _path(to: Any) -> str:
    path = os.fspath(to) if isinstance(to, os.PathLike) else to
    if not isinstance(path, str):
        raise TypeError(
            f"`write` takes the path of the shards, and got {_a(to)}: {to!r:.100}. Write it as "
            "text, 'out/train-*.parquet'."
        )
    if "\0" in path:
        raise PlanError(f"{path!r:.100} has a null byte in it, and no file can be called so.")
    return path


def _names(json_fields: Any) -> list[str]:
    if isinstance(json_fields, str) or not isinstance(json_fields, Iterable):
        given = [json_fields] if isinstance(json_fields, str) else ["text"]
        raise TypeError(
            f"`json_fields` is a list of names, and got {_a(json_fields)}: {json_fields!r:.100}. "
            f"Write `json_fields={given!r:.100}`."
        )
    return list(json_fields)


def _a(value: Any) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


def _pattern(to: str, format: str | None) -> str:
    """The path of the shards, with a star in place of their number."""
    if is_remote(to) and not to.partition("://")[2].strip("/"):
        raise PlanError(
            f"{to!r} names no bucket: write it as {to.rstrip('/')}//bucket/out/a-*.jsonl."
        )
    if to.endswith("/") or (not is_remote(to) and os.path.isdir(os.path.expanduser(to))):
        if format is None:
            raise PlanError(
                f"{to!r} is a folder: add `format=`, or write the name of the shards too, as "
                f"{to.rstrip('/') + '/train-*.parquet'!r}."
            )
        name = f"shard-*{file_format('', format).ending}"
        return f"{to.rstrip('/')}/{name}"
    name = to.rpartition("/")[2]
    wild = next((letter for letter in "?[]" if letter in name), None)
    if wild is not None:
        raise PlanError(
            f"{name!r} has {wild!r} in it, which stands for other letters where files are looked "
            "for: leave it out of the name of the shards."
        )
    if name.count("*") > 1 or "*" in to[: -len(name)]:
        raise PlanError(
            f"{to!r} is to have one star, in its last part, where the number of a shard goes: "
            "'out/train-*.parquet'."
        )
    if not name.strip(".*"):
        raise PlanError(f"{to!r} names no file.")
    return to


class _WriteJob:
    """One call of `write`: its arguments, and its results."""

    def __init__(
        self,
        ds: Dataset[Any],
        folder: Folder,
        format: str | None,
        shards: int | None,
        shard_records: int | None,
        on_error: str,
        json_fields: list[str],
        origins: bool | str,
    ) -> None:
        if not isinstance(ds, Dataset):
            raise TypeError(f"`write` takes a dataset, and got a {type(ds).__name__}: {ds!r:.100}.")
        if on_error not in ("raise", "skip"):
            raise PlanError(
                f"`on_error` is 'raise' or 'skip', and got {on_error!r}. For more, as a "
                "budget or a replacement, end the dataset with `.on_error(...)`."
            )
        if origins not in (True, False, "all"):
            raise PlanError(f"`origins` is True, False or 'all', and got {origins!r}.")
        self._ds, self._folder = ds, folder
        self.is_stream = not isinstance(ds, MapDataset)
        self._node: Node = ds._stream_node() if self.is_stream else map_node(ds)
        one = "*" not in folder.pattern
        for name, value in (("shards", shards), ("shard_records", shard_records)):
            if value is not None and whole(value, name) < 1:
                raise PlanError(f"`{name}` is at least 1, and cannot be {value}.")
        if shards is not None and shard_records is not None:
            raise PlanError("`shards` and `shard_records` say the same in two ways: give one.")
        if one and (shard_records is not None or shards not in (None, 1)):
            raise PlanError(
                f"{folder.path(folder.pattern)!r} is one file, and several shards need a star for "
                "their number: 'out/train-*.parquet'."
            )
        if self.is_stream and shards not in (None, 1):
            raise PlanError(
                "how long a stream is shows at its end, so it cannot be cut into a number of "
                "shards: say `shard_records=`, how many records a shard has."
            )
        self._one = one or (self.is_stream and shards == 1)
        self._asked: dict[str, Any] = {
            "pattern": folder.pattern,
            "format": file_format(folder.pattern, format).name,
            "length": None if self.is_stream else len(ds),
            "shards": 1 if self._one else shards,
            "shard_records": shard_records,
            "on_error": on_error,
            "json_fields": json_fields,
            "pipeline": describe_pipeline(self._node, in_full=True),
            "made_with": made_with(self._node),
            "origins": origins,
        }
        self._check_end()
        self._check_count()
        self.plan: WritePlan | None = None
        # Why the origins of elements could not be traced, if that failed.
        self.untraced: str | None = None
        # CPU seconds and wall seconds that the examined elements took.
        self._look = 0.0, math.inf

    def _check_end(self) -> None:
        length = self._asked["length"]
        if self.is_stream:
            length = length_of(self._node, passes_drops=True)
        if length is not None and length >= ENDLESS:
            raise PlanError(
                "this dataset is endless, and would fill any disk: leave out `repeat()`, give it a "
                "number of epochs, or take a part, `ds[:n]` or `.take(n)`."
            )
        assert ENDLESS < INFINITE

    def _check_count(self) -> None:
        length, size = self._asked["length"], self._asked["shard_records"]
        count = self._asked["shards"] or 0
        if size is not None and length is not None:
            count = -(-length // size)
        if count > _MOST_SHARDS:
            given = "shards" if size is None else "shard_records"
            raise PlanError(
                f"`{given}={self._asked[given]}` makes {count:,} shards, and there can be "
                f"{_MOST_SHARDS:,}: a file takes longer to open than a few records to read. Say "
                f"{'fewer `shards`' if size is None else 'more `shard_records`'}."
            )

    def settle(self, overwrite: bool) -> Manifest | None:
        """Finds the existing files; returns the manifest if it is complete."""
        folder = self._folder
        if overwrite:
            self._remove()
        else:
            done = self._finished()
            if done is not None:
                return done
            plan = folder.get(f"{folder.work}/plan.json")
            if plan is not None:
                self.plan = self._same(read_plan(plan))
                return None
            there = extra_shards(folder.pattern, folder.sizes(), set())
            if there:
                raise PlanError(
                    f"{folder.path(there[0])!r} is there already, and nothing says what made it. "
                    "`overwrite=True` replaces it."
                )
        self.plan = self._new_plan()
        folder.put(f"{folder.work}/plan.json", self.plan.to_bytes())
        return None

    def _remove(self) -> None:
        folder = self._folder
        # First the file on which trust in the others depends.
        folder.remove([folder.manifest])
        folder.remove(
            [f"{folder.work}/{name}" for name in folder.sizes(folder.work)],
        )
        folder.remove_folder(folder.origins)
        folder.remove(extra_shards(folder.pattern, folder.sizes(), set()))

    def _finished(self) -> Manifest | None:
        folder = self._folder
        data = folder.get(folder.manifest)
        if data is None:
            return None
        try:
            told = json.loads(data)
            manifest = manifest_from(told, folder.path(folder.manifest))
            before = {**told["asked"], "pipeline": told["pipeline"], "made_with": told["made_with"]}
            different = list(differences(before, self._asked))
        except FileError as error:
            add_note(error, "bushel: `overwrite=True` replaces the dataset.")
            raise
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FileError(
                f"{folder.path(folder.manifest)!r} is there already and cannot be read ({error}). "
                "`overwrite=True` replaces the dataset."
            ) from None
        if different:
            raise PlanError(
                f"{folder.path(folder.pattern)!r} has been written by another pipeline: "
                f"{'; '.join(different)}. Write elsewhere; or `overwrite=True` replaces it."
            )
        try:
            check_files(manifest)
        except FileError as error:
            add_note(error, "bushel: `overwrite=True` makes all shards anew.")
            raise
        return manifest

    def _same(self, plan: WritePlan | None) -> WritePlan:
        folder = self._folder
        different = ["its plan cannot be read"]
        if plan is not None:
            different = list(differences(plan.told, self._asked))
            if not different:
                return plan
        raise PlanError(
            f"{folder.path(folder.pattern)!r} was begun by another pipeline, and is not finished: "
            f"{'; '.join(different)}. Finish it with that one, or write elsewhere; or "
            "`overwrite=True` begins anew."
        )

    def _new_plan(self) -> WritePlan:
        told = dict(self._asked)
        layout, nbytes = self._looked_at(told["format"], told["json_fields"])
        told["layout"] = None if layout is None else layout.to_json()
        told["traces"] = None
        told["keeps_origins"] = layout is not None and told["origins"] is not False
        if told["keeps_origins"] and why_unknown(self._node, self.is_stream) is not None:
            told["traces"] = self._tracing()
            told["keeps_origins"] = told["traces"] is not None
        length = told["length"]
        if told["shard_records"] is not None and length is not None:
            told["shards"] = -(-length // told["shard_records"])
        elif told["shards"] is None and length is not None:
            by_bytes = -(-length * nbytes // SHARD_BYTES)
            few = min(_FEW_SHARDS, length // _FEW_RECORDS)
            told["shards"] = max(1, min(length, max(by_bytes, few)))
        return WritePlan(told)

    def _tracing(self) -> str | None:
        """How origins are found if arithmetic cannot: "beside" or with "calls", or None."""
        if not self.is_stream:
            return None
        if can_be_traced(self._node, calls=False):
            return "beside"
        is_wanted = self._asked["origins"] == "all" and can_be_traced(self._node, calls=True)
        return "calls" if is_wanted else None

    def _looked_at(self, format: str, json_fields: list[str]) -> tuple[ElementLayout | None, int]:
        """The structure of elements, and the approximate bytes of one as a record."""
        elements: list[Any] = []
        if self._asked["length"] != 0:
            skips = self._asked["on_error"] == "skip"
            began, on_core = time.perf_counter(), time.thread_time()
            iterator = iter(self._ds.on_error("skip") if skips else self._ds)
            try:
                while len(elements) < _LOOKED_AT:
                    elements.append(next(iterator))
            except StopIteration:
                pass
            except Exception as error:
                add_note(error, f"bushel: in element {len(elements)}, of the first ones.")
                raise
            finally:
                iterator.close()
            # The time of threads that make elements is unknown: then it looks like waiting.
            self._look = time.thread_time() - on_core, time.perf_counter() - began
        if not elements:
            return None, 0
        try:
            layout = layout_of(elements, json_fields, alike=format != "jsonl")
            coding = coding_of(format, layout)
            sizes = [size_of(coding.encode(element, 0)) for element in elements]
        except MisfitError as misfit:
            raise cannot_be_written(misfit, format) from None
        return layout, -(-sum(sizes) // len(sizes))

    def write_shards(
        self, workers: int | RayOptions, progress: bool | None
    ) -> Sequence[WrittenShard]:
        """Writes the missing shards, in any order."""
        plan, folder = self.plan, self._folder
        assert plan is not None and plan.shards is not None and plan.length is not None
        done = folder.noted(plan.digest)
        budget = _Budget(self._node, done)
        pending = [number for number in range(plan.shards) if number not in done]
        bounds = [plan.bounds(number) for number in done]
        before = sum(stop - start for start, stop in bounds)
        with (
            shared_counts(plan.shards) as counts,
            shown("writing", plan.length, "elements", counts, before, progress),
        ):
            # If there is a single shard to write, other workers can still make its elements.
            within = workers if len(pending) == 1 and isinstance(workers, int) else 0
            cores = math.inf
            if isinstance(workers, RayOptions):
                cores = workers.num_cpus
            elif workers and not within:
                cores = available_cores() / min(workers, len(pending) or 1)
            ds: Any = self._ds
            # The first elements may not be typical, which shows after a shard.
            many = isinstance(workers, int) and len(pending) >= _MANY_SHARDS * workers
            threads = not many or threads_may_pay(cores, *self._look)
            task = WriteShard(ds, plan, folder, counts, within, cores, threads)
            for result in by_workers(task, pending, 0 if within else workers):
                number = result["number"]
                done[number] = shard_from(result["shard"])
                budget.add(done[number])
                # The worker that made it has counted it, unless that was on another machine.
                start, stop = plan.bounds(number)
                counts.set(number, stop - start)
        return [done[number] for number in range(plan.shards)]

    def finish(self, shards: Sequence[WrittenShard]) -> Manifest:
        """Writes the manifest."""
        plan, folder = self.plan, self._folder
        assert plan is not None
        no_origins = why_unknown(self._node, self.is_stream) if shards else None
        if not plan.told["origins"]:
            no_origins = "`origins=False` was given when it was written"
        elif plan.told["traces"] is not None:
            no_origins = self.untraced
        elif no_origins is not None and self.is_stream and plan.told["origins"] != "all":
            no_origins += "; `write(..., origins='all')` finds out, and calls it once more for that"
        elif self.is_stream and no_origins is None:
            records = sum(shard.records for shard in shards)
            if records != length_of(self._node):
                no_origins = "functions of the pipeline left elements out"
        manifest = Manifest(
            folder.path(folder.manifest),
            plan.pattern,
            plan.format,
            plan.layout if plan.told["layout"] is not None else None,
            tuple(shards),
            tuple(plan.told["pipeline"]),
            plan.told["made_with"],
            tuple(sources_told(self._node)),
            plan.digest,
            no_origins,
        )
        told = manifest.to_json()
        told["asked"] = {name: plan.told[name] for name in (*COMPARED, "shards", "shard_records")}
        folder.put(folder.manifest, (json.dumps(told, indent=1) + "\n").encode())
        return manifest


class _Budget:
    """The budgets of a pipeline for bad records, over all shards."""

    def __init__(self, node: Node, done: dict[int, WrittenShard]) -> None:
        self._budgets = [step.budget for step in walk(node) if isinstance(step, Guard)]
        self._least = min((budget for budget in self._budgets if budget is not None), default=None)
        self._bad = 0
        for shard in done.values():
            self.add(shard)

    def add(self, shard: WrittenShard) -> None:
        self._bad += sum(shard.bad)
        if self._least is not None and self._bad > self._least:
            raise BadRecordsError(
                f"{self._bad} bad records are more than the budget of {self._least} that "
                "`on_error` was given; they are of several shards."
            )


__all__ = ["FILE_FORMATS", "write"]
