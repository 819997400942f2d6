"""Hugging Face: the `Trainer` on a pipeline, stopped and gone on with, and a dataset of rows.

The model is made of a config, so that nothing is downloaded.
"""

import tempfile

import numpy as np
import torch
import transformers

import bushel

transformers.utils.logging.set_verbosity_error()
LENGTH, VOCABULARY = 32, 64


def documents():
    """Tokens of documents of several lengths; yours come from `bushel.open("corpus/*.parquet")`."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(4, LENGTH, 400)
    texts = [np.cumsum(rng.integers(0, 3, length)) % VOCABULARY for length in lengths]
    return bushel.MapDataset.source(texts).seed(7).shuffle().repeat()


def batches():
    """Rows of one length, packed of documents, under the names that the model has for them."""
    ds = documents().map(lambda tokens: {"tokens": tokens})
    ds = ds.to_iter_dataset().pack({"tokens": LENGTH}, bins=16)
    return ds.map(to_inputs).batch(8)


def to_inputs(row):
    tokens, documents = row["tokens"], row["tokens_segment_ids"]
    return {
        "input_ids": tokens,
        "position_ids": row["tokens_positions"].astype(np.int64),
        "labels": np.where(documents > 0, tokens, -100),
    }


def trainer(folder):
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCABULARY, "n_positions": LENGTH, "n_embd": 16}
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = transformers.GPT2Config(**sizes, n_layer=2, n_head=2, **ends)
    arguments = transformers.TrainingArguments(
        folder,
        max_steps=60,  # the data is endless
        save_steps=20,
        learning_rate=1e-2,
        logging_steps=20,
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
    )
    model = transformers.GPT2LMHeadModel(config)
    # Batches are the pipeline's; `per_device_train_batch_size` and collators have no part in it.
    return bushel.huggingface.Trainer(model, arguments, train_dataset=batches())


def main():
    with tempfile.TemporaryDirectory() as folder:
        whole = trainer(folder)
        whole.train()
        resumed = trainer(folder)
        resumed.train(resume_from_checkpoint=f"{folder}/checkpoint-20")
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    print(f"the loss went from {float(losses[0]):.2f} to {float(losses[-1]):.2f}")
    one, other = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)
    print("gone on with at step 20: the same parameters, bit for bit")

    rows = bushel.huggingface.iterable_dataset(documents()[:100].map(lambda x: {"tokens": x}))
    print(f"as a dataset of Hugging Face: {sum(1 for _ in rows)} rows in {rows.num_shards} shard")


if __name__ == "__main__":
    main()
