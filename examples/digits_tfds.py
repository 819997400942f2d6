"""Writes pictures as a TFDS dataset in ArrayRecord files, without TensorFlow."""

import contextlib
import io

import tensorflow_datasets as tfds
from pictures import load_pictures, png


class Digits(tfds.core.GeneratorBasedBuilder):
    """Pictures as PNG files, each with its class."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
        )

    def _split_generators(self, dl_manager):
        return {split: self._generate_examples(split) for split in ("train", "test")}

    def _generate_examples(self, split):
        images, labels = load_pictures()[split]
        for i, (image, label) in enumerate(zip(images, labels, strict=True)):
            # TFDS needs TensorFlow to compress an array, and nothing to store a PNG file.
            yield i, {"image": png(image), "label": int(label)}


def build(folder, file_format="array_record"):
    """Puts the dataset into `folder`, which is then what TFDS calls a `data_dir`."""
    tfds.disable_progress_bar()
    with contextlib.redirect_stdout(io.StringIO()):
        Digits(data_dir=folder, file_format=file_format).download_and_prepare()
