"""`TFRecordIterDataset`: Grain's class; `sources/tfrecord/file_stream.py` reads the file."""

import os

from bushel.dataset import StreamNodeDataset
from bushel.sources.tfrecord.file_stream import FileStreamNode


class TFRecordIterDataset(StreamNodeDataset[bytes]):
    """The records of a TFRecord file, one after the other.

    They come in the order of the file, and nothing is looked up before. For records in any
    order, or of many files, there is `sources.TFRecordDataSource`.

    >>> import tempfile
    >>> from bushel.sources import write_tfrecords
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_tfrecords(f"{folder}/a.tfrecord", [b"one", b"two"])
    ...     list(TFRecordIterDataset(f"{folder}/a.tfrecord"))
    [b'one', b'two']
    """

    def __init__(self, path: str) -> None:
        super().__init__(FileStreamNode(os.fspath(path), type(self).__name__))
