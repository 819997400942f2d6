"""Text: two corpora mixed and shuffled, BPE, packed to 2,048, batches of 8."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import cycle
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from benchmarks.jobs import data, peers_text
from benchmarks.jobs.convert import document_hash
from benchmarks.jobs.job import Entry, Job
from benchmarks.jobs.user import (
    END_ID,
    ROW,
    ROWS,
    TAG_IDS,
    WEIGHTS,
    Lines,
    Packer,
    mixed,
    tokenise,
    tokenised,
    tokenised_text,
)

WORKERS = 2


def tokens_in(batch: Any) -> int:
    return int(np.prod(np.shape(batch["tokens"])))


def check(folder: Path, batches: list[Any]) -> str | None:
    """Looks for the documents of the batches in the corpora: whole ones, and mixed by weight."""
    known = {corpus: set(np.load(folder / f"{corpus}.hashes.npy")) for corpus in data.CORPORA}
    names = {number: corpus for corpus, number in TAG_IDS.items()}
    seen = dict.fromkeys(data.CORPORA, 0)
    for batch in batches:
        rows = batch["tokens"]
        if rows.shape != (ROWS, ROW) or rows.dtype.kind != "i":
            return f"a batch of {rows.dtype} {rows.shape}"
        for row in rows:
            ends = np.flatnonzero(row == END_ID) + 1
            for document in np.split(row, ends)[1:-1]:  # the first and the last may be parts
                corpus = names.get(int(document[0]))
                if corpus is None or document_hash(document) not in known[corpus]:
                    return f"a document that is in neither corpus: {document[:8].tolist()} ..."
                seen[corpus] += 1
    share = seen["web"] / max(1, sum(seen.values()))
    if abs(share - WEIGHTS["web"]) > 0.1:
        return f"a mixture of {seen} documents, where 0.7 and 0.3 are wanted"
    return None


Documents = Callable[[], dict[str, Any]]


def by_hand(folder: Path, documents: Documents) -> Iterator[Any]:
    """Lets two processes do everything, each for itself; batches come through a pipe as bytes."""
    context = get_context("fork")
    corpora = documents()
    pipes, processes = [], []
    for worker in range(WORKERS):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=work_by_hand, args=(folder, corpora, worker, sender), daemon=True
        )
        process.start()
        pipes.append(receiver)
        processes.append(process)
    try:
        for receiver in cycle(pipes):
            tokens = np.frombuffer(receiver.recv_bytes(), np.int32)
            yield {"tokens": tokens.reshape(ROWS, ROW)}
    finally:
        for process in processes:
            process.kill()


def work_by_hand(folder: Path, corpora: dict[str, Any], seed: int, sender: Any) -> None:
    packer = Packer()
    sizes = {name: len(lines) for name, lines in corpora.items()}
    for corpus, number in mixed(sizes, np.random.default_rng(seed)):
        for batch in packer.batches(tokenise(str(folder), corpora[corpus][number])):
            sender.send_bytes(np.ascontiguousarray(batch))


def lines_by_hand(folder: Path) -> Iterator[Any]:
    def documents() -> dict[str, Any]:
        return {corpus: Lines(folder / f"{corpus}.jsonl") for corpus in data.CORPORA}

    return by_hand(folder, documents)


def parquet_by_hand(folder: Path) -> Iterator[Any]:
    """Has the corpora in memory, since they fit."""

    def documents() -> dict[str, Any]:
        import pyarrow.parquet as pq

        return {
            corpus: pq.read_table(folder / f"{corpus}.parquet")["text"].to_pylist()
            for corpus in data.CORPORA
        }

    return by_hand(folder, documents)


def chain(lib: ModuleType, sources: dict[str, Any], function: Any) -> Any:
    """The beginning of the pipeline, which bushel and Grain have in common."""
    parts = [
        lib.MapDataset.source(source).seed(number).shuffle().repeat()
        for number, source in enumerate(sources.values())
    ]
    mixture = lib.MapDataset.mix(parts, weights=[WEIGHTS[corpus] for corpus in sources])
    return mixture.map(function).to_iter_dataset()


def bushel_chain(folder: Path, workers: int, ending: str, early: bool = False) -> Any:
    import bushel

    reader = {
        "jsonl": bushel.sources.JsonLinesDataSource,
        "parquet": bushel.sources.ParquetDataSource,
    }[ending]
    sources = {corpus: reader(str(folder / f"{corpus}.{ending}")) for corpus in data.CORPORA}
    stream = chain(bushel, sources, partial(tokenised, str(folder)))
    options = bushel.MultiprocessingOptions(num_workers=workers)
    if workers and early:
        stream = stream.mp_prefetch(options)
    stream = stream.pack({"tokens": ROW}, strategy="concat_then_split").batch(ROWS)
    return stream.mp_prefetch(options) if workers and not early else stream


def bushel_lines(folder: Path, workers: int) -> Iterable[Any]:
    batches: Iterable[Any] = bushel_chain(folder, workers, "jsonl")
    return batches


def bushel_lines_early(folder: Path) -> Iterable[Any]:
    batches: Iterable[Any] = bushel_chain(folder, WORKERS, "jsonl", early=True)
    return batches


def bushel_parquet(folder: Path, workers: int) -> Iterable[Any]:
    batches: Iterable[Any] = bushel_chain(folder, workers, "parquet")
    return batches


class Stateful:
    """A dataset of bushel's or Grain's, from a state on."""

    def __init__(self, dataset: Any, state: Any) -> None:
        self._iterator = iter(dataset)
        if state is not None:
            self._iterator.set_state(state)

    def __iter__(self) -> Iterator[Any]:
        return self._iterator

    def state(self) -> Any:
        return self._iterator.get_state()


def bushel_resumed(folder: Path, state: Any, workers: int) -> Stateful:
    return Stateful(bushel_chain(folder, workers, "jsonl"), state)


def grain_chain(folder: Path, workers: int) -> Any:
    import grain

    sources = {corpus: Lines(folder / f"{corpus}.jsonl") for corpus in data.CORPORA}
    return grain_packed(grain, chain(grain, sources, partial(tokenised_text, str(folder))), workers)


def grain_packed(grain: ModuleType, stream: Any, workers: int) -> Any:
    stream = grain.experimental.ConcatThenSplitIterDataset(stream, length_struct={"tokens": ROW})
    stream = stream.batch(ROWS, drop_remainder=True)
    if workers:
        stream = stream.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    return stream


def grain_lines(folder: Path, workers: int) -> Iterable[Any]:
    batches: Iterable[Any] = grain_chain(folder, workers)
    return batches


def grain_resumed(folder: Path, state: Any, workers: int) -> Stateful:
    return Stateful(grain_chain(folder, workers), state)


def grain_parquet(folder: Path) -> Iterable[Any]:
    """As a stream, which is how Grain reads Parquet: shuffled in a window, by no workers."""
    import grain

    parts = [
        grain.experimental.WindowShuffleIterDataset(
            grain.experimental.RepeatIterDataset(
                grain.experimental.ParquetIterDataset(str(folder / f"{corpus}.parquet"))
            ),
            window_size=1000,
            seed=0,
        )
        for corpus in data.CORPORA
    ]
    mixture = grain.IterDataset.mix(parts, weights=[WEIGHTS[corpus] for corpus in data.CORPORA])
    stream = mixture.map(partial(tokenised, str(folder)))
    batches: Iterable[Any] = grain_packed(grain, stream, 0)
    return batches


def both(
    name: str,
    package: str,
    make: Callable[[Path, int], Iterable[Any]],
    resume: Callable[[Path, Any, int], Any] | None = None,
) -> tuple[Entry, Entry]:
    """An entry without worker processes, with the options that nobody set, and one with two."""

    def entry(workers: int) -> Entry:
        return Entry(
            f"{name}, {workers} workers",
            package,
            lambda folder: make(folder, workers),
            resume=resume and (lambda folder, state: resume(folder, state, workers)),
        )

    return entry(0), entry(2)


def job(name: str, title: str, *entries: Entry) -> Job:
    return Job(
        name=name,
        title=title,
        unit="tokens/s",
        units_in=tokens_in,
        check=check,
        checked_batches=24,
        prepared=("text",),
        entries=entries,
    )


LINES = job(
    "text_json_lines",
    "text from JSON lines, or a format of its own: mix, shuffle, BPE, pack to 2,048, batches of 8",
    Entry("by hand, 2 processes", None, lines_by_hand),
    *both("bushel", "bushel", bushel_lines, bushel_resumed),
    Entry("bushel, 2 workers before packing", "bushel", bushel_lines_early),
    *both("Grain", "grain", grain_lines, grain_resumed),
    Entry(
        "torch, 2 workers",
        "torchdata.stateful_dataloader",
        peers_text.torch_lines,
        resume=peers_text.torch_resumed,
    ),
    Entry("tf.data", "tensorflow", peers_text.tf_lines),
    Entry("SPDL, 2 processes", "spdl.pipeline", peers_text.spdl),
    Entry("WebDataset, 2 workers", "webdataset", peers_text.webdataset, ("webdataset_text",)),
    Entry(
        "litdata, 2 workers",
        "litdata",
        peers_text.litdata,
        ("litdata_text",),
        peers_text.LitdataStream,
    ),
    Entry(
        "Streaming, 2 workers",
        "streaming",
        peers_text.streaming,
        ("streaming_text",),
        peers_text.StreamingStream,
    ),
    Entry("Hugging Face, 2 workers", "datasets torch.utils.data", peers_text.huggingface_lines),
)
PARQUET = job(
    "text_parquet",
    "the same from Parquet",
    Entry("by hand, 2 processes", None, parquet_by_hand),
    *both("bushel", "bushel", bushel_parquet),
    Entry("Grain, 0 workers", "grain", grain_parquet),
    Entry("Hugging Face, 2 workers", "datasets torch.utils.data", peers_text.huggingface_parquet),
)
