"""A first pipeline: where records come from, in what order, and what happens to each one.

Run it with `python examples/01_first_pipeline.py`; it needs nothing but bushel.
"""

import bushel as grain

WORDS = "the quick brown fox jumps over the lazy dog and runs home to its den".split()


def describe(word):
    return {"word": word, "length": len(word)}


# Nothing runs yet: each call returns a new dataset that knows what to do when asked.
dataset = (
    grain.MapDataset.source(WORDS)  # anything with len() and [i]
    .seed(11)  # for all random steps that follow
    .shuffle()
    .map(describe)
)

print(f"{len(dataset)} elements, in random order, any of them on demand:")
print("  element 0:", dataset[0])
print("  element 9:", dataset[9])
print("  element 0 again:", dataset[0])

# Positions beyond the length belong to later epochs, each shuffled in its own way.
print("\nThe first three words of three epochs:")
for epoch in range(3):
    start = epoch * len(dataset)
    print(f"  epoch {epoch}:", *(dataset[start + i]["word"] for i in range(3)))

# A slice is a dataset again, and so is every other part of one: that is how to shard.
print("\nTwo shards of the first four:")
for shard in range(2):
    print(f"  shard {shard}:", *(element["word"] for element in dataset[shard:4:2]))

# Batches stack each field of their elements into one array.
print("\nThe whole epoch in batches of 4, long words only:")
long_words = (
    dataset.filter(lambda element: element["length"] > 3)
    .to_iter_dataset()  # from here on a stream, in which dropped elements leave no gap
    .batch(4)
)
for batch in long_words:
    print("  words", list(map(str, batch["word"])), "lengths", batch["length"])
