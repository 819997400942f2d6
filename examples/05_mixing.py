"""Mixes several datasets in given proportions, in random access and as streams."""

from collections import Counter

import bushel as grain


def corpus(name, size):
    """Stands for a corpus of documents."""
    return grain.MapDataset.range(size).map(lambda i: f"{name}-{i}")


def shares(elements):
    counts = Counter(element.split("-")[0] for element in elements)
    return ", ".join(f"{name} {n / counts.total():.0%}" for name, n in sorted(counts.items()))


books, code, web = corpus("books", 3_000), corpus("code", 5_000), corpus("web", 50_000)

# Proportions hold all along the way, not just in the end: the order is laid out, not drawn.
mixed = grain.MapDataset.mix([books, code, web], weights=[0.2, 0.3, 0.5])
print("Mixed 2 : 3 : 5, the first ten:", *mixed[:10])
print(f"  shares in the first 100: {shares(mixed[:100])}")
print(f"  shares in all of it:     {shares(mixed)}")

# The mixture ends where one part would be used a second time ...
print(f"  length: {len(mixed):,}, for books would then begin again")
# ... unless the parts are told to repeat.
endless = grain.MapDataset.mix(
    [
        books.seed(1).shuffle().repeat(),
        code.seed(2).shuffle().repeat(),
        web.seed(3).shuffle().repeat(),
    ],
    weights=[0.2, 0.3, 0.5],
)
print(f"  with repeat(): element 1,000,000,000 is {endless[1_000_000_000]}")

# One after another, and side by side.
print("\nConcatenated:", *grain.MapDataset.concatenate([books[:2], code[:2], web[:2]]))
print("Zipped:", *grain.experimental.ZipMapDataset([books[:3], code[:3]]))

# Streams mix too, after filters and batches, when random access is no longer to be had.
some = books.filter(lambda text: not text.endswith("1")).to_iter_dataset()
stream = grain.IterDataset.mix([some, web.to_iter_dataset()], weights=[0.5, 0.5])
first = [text for text, _ in zip(stream, range(8), strict=False)]
print("Streams, 1 : 1:", *first)
