"""The files that the jobs read: pictures, two corpora of text, tokens. Made on the spot."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.jobs.user import END, TAGS, opencv

CLASSES = 16
IMAGES = 1536
WIDTH, HEIGHT = 500, 375  # ImageNet's usual size
PHOTOGRAPHS = ("china.jpg", "flower.jpg")  # those that come with scikit-learn
QUALITIES = (75, 85, 95)

CORPORA = {"web": 6_000, "books": 2_500}  # documents
WORDS = 30_000
WORDS_IN_A_DOCUMENT = 250.0  # the median; the lengths are lognormal
VOCABULARY = 8_000
DOCUMENTS_FOR_TRAINING = 1_000

TOKENS = 32_000_000  # 64 MB of them


def image_path(folder: Path, number: int) -> Path:
    return folder / "images" / f"class{number % CLASSES:02d}" / f"{number:05d}.jpg"


def image_files(folder: Path) -> list[tuple[str, int]]:
    """Gives every picture's path and label."""
    paths = sorted((folder / "images").glob("*/*.jpg"))
    return [(str(path), int(path.parent.name.removeprefix("class"))) for path in paths]


def make_images(folder: Path) -> None:
    """Cuts and mirrors two photographs, each file another part in one of three qualities."""
    cv2 = opencv()
    photographs = []
    for name in PHOTOGRAPHS:
        with as_file(files("sklearn") / "datasets" / "images" / name) as path:
            photographs.append(cv2.resize(cv2.imread(str(path)), (WIDTH + 80, HEIGHT + 60)))
    for label in range(CLASSES):
        image_path(folder, label).parent.mkdir(parents=True)

    def write(number: int) -> None:
        rng = np.random.default_rng(number)
        top, left = rng.integers((60, 80), endpoint=True)
        image = photographs[number % 2][top : top + HEIGHT, left : left + WIDTH]
        image = image[:, :: int(rng.choice([-1, 1]))]
        quality = (cv2.IMWRITE_JPEG_QUALITY, QUALITIES[number % 3])
        _, file = cv2.imencode(".jpg", np.ascontiguousarray(image), quality)
        image_path(folder, number).write_bytes(file.tobytes())

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(IMAGES)))


@cache
def words() -> list[str]:
    """Invents words of one to four syllables."""
    rng = np.random.default_rng(0)
    consonants, vowels = list("bcdfghklmnprstvw"), ["a", "e", "i", "o", "u", "ea", "ou"]
    found: dict[str, None] = {}
    while len(found) < WORDS:
        syllables = [
            rng.choice(consonants) + rng.choice(vowels) + rng.choice(["", "n", "s", "r"])
            for _ in range(int(rng.integers(1, 5)))
        ]
        found["".join(syllables)] = None
    return list(found)


def documents(corpus: str) -> Iterator[str]:
    """Writes documents whose words are as unlike in frequency as those of a language."""
    rng = np.random.default_rng(len(corpus))
    vocabulary = np.array(words(), dtype=object)
    frequencies = 1 / np.arange(1, WORDS + 1)
    frequencies /= frequencies.sum()
    lengths = rng.lognormal(np.log(WORDS_IN_A_DOCUMENT), 0.8, CORPORA[corpus]).astype(int) + 1
    chosen = rng.choice(WORDS, size=int(lengths.sum()), p=frequencies)
    for part in np.split(vocabulary[chosen], np.cumsum(lengths)[:-1]):
        yield TAGS[corpus] + " ".join(part)


def make_text(folder: Path) -> None:
    """Writes both corpora as JSON lines and as Parquet, and the tokenizer trained on them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    seen: list[str] = []
    for corpus in CORPORA:
        texts = list(documents(corpus))
        seen += texts[:DOCUMENTS_FOR_TRAINING]
        with (folder / f"{corpus}.jsonl").open("w") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in texts)
        table = pa.table({"text": texts})
        pq.write_table(table, folder / f"{corpus}.parquet", row_group_size=256)
    train(seen).save(str(folder / "tokenizer.json"))


def train(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=[END, *TAGS.values()], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def make_tokens(folder: Path) -> None:
    rng = np.random.default_rng(0)
    rng.integers(0, 50_000, TOKENS, dtype=np.uint16).tofile(folder / "tokens.bin")
