"""From files of text to packed batches of tokens: mixed, stopped, and resumed to the same end."""

import json
import pathlib
import tempfile

import numpy as np

import bushel

ROW, BATCH = 128, 8


def write_corpora(folder):
    """Stands for the work of somebody else, who left a damaged line behind."""
    rng = np.random.default_rng(7)
    for name, count in {"books": 300, "web": 900}.items():
        with open(folder / f"{name}.jsonl", "w") as file:
            for number in range(count):
                words = " ".join(f"{name}{number}" for _ in range(rng.integers(1, 12)))
                line = json.dumps({"text": words})
                file.write((line[:-5] if (name, number) == ("web", 40) else line) + "\n")


def tokens(record):
    """The bytes of a text are tokens enough for an example; 0 begins a document."""
    return {"tokens": np.frombuffer(b"\0" + record["text"].encode(), np.uint8).astype(np.int32)}


def corpus(path):
    ds = bushel.MapDataset.source(bushel.open(path))
    ds = ds.on_error("skip", budget=10, quarantine=path.with_name("bad.jsonl"))
    return ds.seed(1).shuffle().map(tokens).to_iter_dataset()


def pipeline(folder, workers):
    parts = {name: corpus(folder / f"{name}.jsonl") for name in ("books", "web")}
    # Books at first, and ever more of the web.
    schedule = bushel.WeightSchedule.linear(
        [(0, {"books": 3, "web": 1}), (600, {"books": 1, "web": 3})]
    )
    ds = bushel.IterDataset.mix(parts, schedule, on_end="drop")
    ds = ds.pack({"tokens": ROW}, strategy="best_fit", bins=16).batch(BATCH, drop_remainder=True)
    return ds.mp_prefetch(bushel.MultiprocessingOptions(workers))


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    write_corpora(folder)
    with iter(pipeline(folder, workers=2)) as iterator:
        whole = list(iterator)
        counts = bushel.checkpoint.mix_counts(iterator)
    filled = np.mean([batch["tokens_segment_ids"] > 0 for batch in whole])
    print(f"{len(whole)} batches of {BATCH} rows of {ROW} tokens; {1 - filled:.1%} is padding")
    for part, given in counts.items():
        print(f"  {part}: {given.elements} documents, {given.share:.0%} of the mixture")
    (bad,) = map(json.loads, (folder / "bad.jsonl").read_text().splitlines())
    where = f"record {bad['record']} of {pathlib.Path(bad['file']).name}"
    print(f"One was passed over: {where}, at byte {bad['offset']}")

    # Stopped after 5 batches, by a program with no workers ...
    with iter(pipeline(folder, workers=0)) as iterator:
        for _ in range(5):
            next(iterator)
        state = json.dumps(iterator.get_state())
    # ... and resumed by one that has two.
    with iter(pipeline(folder, workers=2)) as iterator:
        iterator.set_state(json.loads(state))
        rest = list(iterator)
    pairs = zip(rest, whole[5:], strict=True)
    assert all(np.array_equal(one["tokens"], other["tokens"]) for one, other in pairs)
    print(f"Resumed after 5 batches: the other {len(rest)} are identical")
