"""The pictures that the guides train on: scikit-learn's digits, or Fashion-MNIST.

A guide started with `--fashion-mnist FOLDER` reads that folder's four IDX files. Nothing is
downloaded.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from idx_files import read_split


def load_pictures():
    """Gives `{"train": (images, labels), "test": (images, labels)}`, all uint8."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fashion-mnist", type=Path, metavar="FOLDER")
    folder = parser.parse_known_args()[0].fashion_mnist
    if folder:
        return {split: [a.copy() for a in read_split(folder, split)] for split in ("train", "test")}
    from sklearn.datasets import load_digits

    digits = load_digits()
    images, labels = (digits.images * 15).astype(np.uint8), digits.target.astype(np.uint8)
    held_out = np.arange(len(images)) % 5 == 0
    return {
        "train": (images[~held_out], labels[~held_out]),
        "test": (images[held_out], labels[held_out]),
    }


class Pictures:
    """One picture at a time, as every loader understands it: a length, and a record by number."""

    def __init__(self, split):
        self.split = split
        self.images, self.labels = load_pictures()[split]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"image": self.images[index], "label": self.labels[index]}

    def __repr__(self):  # part of a saved state, which only fits the same source
        return f"Pictures({self.split!r})"


def png(image):
    """Gives a file in memory that holds one picture."""
    import cv2

    return io.BytesIO(cv2.imencode(".png", image)[1].tobytes())
