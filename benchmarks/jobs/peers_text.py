"""The text job in the libraries beside bushel and Grain, as their documentation recommends."""

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jobs import data
from benchmarks.jobs.job import for_ever
from benchmarks.jobs.streaming_import import import_streaming
from benchmarks.jobs.user import ROW, ROWS, WEIGHTS, Lines, Packer, Tokens, mixed, tokenise

WORKERS = 2
DOCUMENTS = 32  # that travel together where packing happens in the trainer
MANY = 10**7  # as good as for ever, where a length is needed


class PackedLines:
    """A dataset for torch which packs in the worker, and says where it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._corpora = {corpus: Lines(folder / f"{corpus}.jsonl") for corpus in data.CORPORA}
        self._taken = 0
        self._rest: list[int] = []
        self._packer = Packer()

    def __iter__(self) -> Iterator[Any]:
        from torch.utils.data import get_worker_info

        worker = get_worker_info()
        sizes = {corpus: len(lines) for corpus, lines in self._corpora.items()}
        drawn = mixed(sizes, np.random.default_rng(worker.id if worker else 0))
        for _ in range(self._taken):
            next(drawn)
        self._packer = Packer(self._rest)
        for corpus, number in drawn:
            self._taken += 1
            text = self._corpora[corpus][number]
            for batch in self._packer.batches(tokenise(str(self._folder), text)):
                yield {"tokens": batch}

    def state_dict(self) -> dict[str, Any]:
        return {"taken": self._taken, "rest": self._packer.rest()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._taken, self._rest = state["taken"], state["rest"]


def torch_dataset(folder: Path) -> Any:
    from torch.utils.data import IterableDataset

    class Packed(PackedLines, IterableDataset):  # type: ignore[misc, type-arg]
        pass

    return Packed(folder)


def torch_lines(folder: Path) -> Iterable[Any]:
    from torch.utils.data import DataLoader

    loader: Iterable[Any] = DataLoader(torch_dataset(folder), batch_size=None, num_workers=WORKERS)
    return loader


class TorchStream:
    """torchdata's loader, which asks the dataset in each worker for its state."""

    def __init__(self, folder: Path, state: Any) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        self._loader = StatefulDataLoader(
            torch_dataset(folder), batch_size=None, num_workers=WORKERS
        )
        if state is not None:
            self._loader.load_state_dict(state)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._loader)

    def state(self) -> Any:
        return self._loader.state_dict()


torch_resumed = TorchStream


def tf_lines(folder: Path) -> Iterator[Any]:
    """Packs by `rebatch`; the tokenizer is Python's, and so runs in its interpreter."""
    import json

    import tensorflow as tf

    def encode(line: Any) -> Tokens:
        return tokenise(str(folder), json.loads(line)["text"])

    def tokens(line: Any) -> Any:
        ids = tf.numpy_function(encode, [line], tf.int32)
        ids.set_shape([None])
        return ids

    corpora = [
        tf.data.TextLineDataset(str(folder / f"{corpus}.jsonl")).shuffle(2000).repeat()
        for corpus in data.CORPORA
    ]
    mixture = tf.data.Dataset.sample_from_datasets(corpora, [WEIGHTS[c] for c in data.CORPORA])
    documents = mixture.map(tokens, num_parallel_calls=tf.data.AUTOTUNE)
    batches = documents.rebatch(ROW, drop_remainder=True).batch(ROWS)
    delivered = batches.map(lambda rows: {"tokens": rows}).prefetch(tf.data.AUTOTUNE)
    iterator: Iterator[Any] = delivered.as_numpy_iterator()
    return iterator


def encode_many(folder: str, texts: list[str]) -> list[Tokens]:
    return [tokenise(folder, text) for text in texts]


def spdl(folder: Path) -> Iterator[Any]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    from spdl.pipeline import PipelineBuilder

    corpora = {corpus: Lines(folder / f"{corpus}.jsonl") for corpus in data.CORPORA}
    packer = Packer()

    def texts() -> Iterator[str]:
        sizes = {corpus: len(lines) for corpus, lines in corpora.items()}
        for corpus, number in mixed(sizes, np.random.default_rng(0)):
            yield corpora[corpus][number]

    def pack(documents: list[Tokens]) -> Iterator[Any]:
        for document in documents:
            for batch in packer.batches(document):
                yield {"tokens": batch}

    executor = ProcessPoolExecutor(WORKERS, get_context("forkserver"))
    pipeline = (
        PipelineBuilder()
        .add_source(texts())
        .aggregate(DOCUMENTS)
        .pipe(partial(encode_many, str(folder)), executor=executor, concurrency=2 * WORKERS)
        .pipe(pack)
        .add_sink(4)
        .build(num_threads=2)
    )
    try:
        with pipeline.auto_stop():
            yield from pipeline
    finally:
        executor.shutdown(cancel_futures=True)


def webdataset(folder: Path) -> Iterable[Any]:
    import webdataset as wds

    def corpus(name: str) -> Any:
        shards = sorted(str(path) for path in folder.glob(f"{name}-*.tar"))
        return wds.WebDataset(shards, resampled=True).shuffle(1000)

    class Packed(wds.PipelineStage):  # type: ignore[name-defined, misc]
        def run(self, samples: Iterable[Any]) -> Iterator[Any]:
            packer = Packer()
            for sample in samples:
                for batch in packer.batches(tokenise(str(folder), sample["txt"].decode())):
                    yield {"tokens": batch}

    mixture = wds.RandomMix([corpus(c) for c in data.CORPORA], [WEIGHTS[c] for c in data.CORPORA])
    dataset = wds.DataPipeline(mixture, Packed())
    loader: Iterable[Any] = wds.WebLoader(dataset, batch_size=None, num_workers=WORKERS)
    return loader


def gathered(documents: list[Any]) -> dict[str, list[Any]]:
    """Collates without stacking; in a dict, since Streaming counts the first thing in a batch."""
    return {"documents": documents}


class Tokenised:
    """litdata's transform, a class so that workers may be spawned."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, sample: Any) -> Tokens:
        return tokenise(self._folder, sample["text"])


class LoaderStream:
    """Packs in the trainer what a loader gives, and keeps what is left with its state."""

    def __init__(self, loader: Any, state: Any) -> None:
        self._loader = loader
        self._packer = Packer(state["rest"] if state else ())
        if state:
            self._loader.load_state_dict(state["loader"])
        self._documents: list[Tokens] = []

    def __iter__(self) -> Iterator[Any]:
        for some in for_ever(self._loader):
            self._documents = some["documents"]
            while self._documents:
                for batch in self._packer.batches(self._documents.pop(0)):
                    yield {"tokens": batch}

    def state(self) -> Any:
        left = [int(token) for document in self._documents for token in document]
        return {"loader": self._loader.state_dict(), "rest": self._packer.rest() + left}


class LitdataStream(LoaderStream):
    def __init__(self, folder: Path, state: Any) -> None:
        import litdata

        corpora = [
            litdata.StreamingDataset(
                str(folder / f"litdata_{corpus}"),
                shuffle=True,
                transform=Tokenised(str(folder)),
            )
            for corpus in data.CORPORA
        ]
        mixture = litdata.CombinedStreamingDataset(
            corpora, weights=[WEIGHTS[c] for c in data.CORPORA], iterate_over_all=False
        )
        loader = litdata.StreamingDataLoader(
            mixture, batch_size=DOCUMENTS, num_workers=WORKERS, collate_fn=gathered
        )
        super().__init__(loader, state)


def litdata(folder: Path) -> Iterator[Any]:
    return iter(LitdataStream(folder, None))


class StreamingStream(LoaderStream):
    def __init__(self, folder: Path, state: Any) -> None:
        module = import_streaming()
        module.base.util.clean_stale_shared_memory()

        class Encoded(module.StreamingDataset):  # type: ignore[name-defined, misc]
            def __getitem__(self, key: int) -> Tokens:
                return tokenise(str(folder), super().__getitem__(key)["text"])

        streams = [
            module.Stream(local=str(folder / f"streaming_{corpus}"), proportion=WEIGHTS[corpus])
            for corpus in data.CORPORA
        ]
        dataset = Encoded(
            streams=streams,
            shuffle=True,
            batch_size=DOCUMENTS,
            epoch_size=4 * sum(data.CORPORA.values()),
        )
        loader = module.StreamingDataLoader(
            dataset, batch_size=DOCUMENTS, num_workers=WORKERS, collate_fn=gathered
        )
        super().__init__(loader, state)


def streaming(folder: Path) -> Iterator[Any]:
    return iter(StreamingStream(folder, None))


def huggingface(folder: Path, kind: str, ending: str) -> Iterable[Any]:
    """Streams from shards of the dataset, packs in batched maps, and loads with torch."""
    import datasets
    from torch.utils.data import DataLoader

    datasets.disable_progress_bars()

    def encode(rows: dict[str, list[str]]) -> dict[str, Any]:
        return {"tokens": encode_many(str(folder), rows["text"])}

    def pack(rows: dict[str, list[Any]]) -> dict[str, Any]:
        joined = np.concatenate([np.asarray(tokens, np.int32) for tokens in rows["tokens"]])
        return {"tokens": list(joined[: len(joined) // ROW * ROW].reshape(-1, ROW))}

    corpora = []
    for corpus in data.CORPORA:
        dataset = datasets.Dataset.from_parquet if kind == "parquet" else datasets.Dataset.from_json
        rows = dataset(str(folder / f"{corpus}.{ending}"), cache_dir=str(folder / "cache"))
        corpora.append(rows.to_iterable_dataset(num_shards=8).shuffle(seed=0, buffer_size=1000))
    mixture = datasets.interleave_datasets(
        [corpus.repeat(None) for corpus in corpora],
        probabilities=[WEIGHTS[c] for c in data.CORPORA],
        seed=0,
    )
    rows = mixture.map(encode, batched=True, batch_size=100, remove_columns=["text"])
    rows = rows.map(pack, batched=True, batch_size=100).with_format("numpy")
    loader: Iterable[Any] = DataLoader(
        rows, batch_size=ROWS, num_workers=WORKERS, drop_last=True, collate_fn=stacked
    )
    return loader


def stacked(rows: list[Any]) -> Any:
    return {"tokens": np.stack([row["tokens"] for row in rows])}


def huggingface_lines(folder: Path) -> Iterable[Any]:
    return huggingface(folder, "json", "jsonl")


def huggingface_parquet(folder: Path) -> Iterable[Any]:
    return huggingface(folder, "parquet", "parquet")
