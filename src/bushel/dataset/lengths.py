"""`pack`, `batch_by_tokens`, `bucket_by_length`: methods for sequences of many lengths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bushel.dataset.base import Dataset, T

if TYPE_CHECKING:
    from bushel.batch.length_of import Length
    from bushel.core.node import Node
    from bushel.dataset.stream import IterDataset


class Lengths(Dataset[T]):
    """Methods of a stream whose elements have many lengths."""

    if TYPE_CHECKING:

        def _then(self, node: Node) -> IterDataset[Any]: ...

    def pack(
        self,
        lengths: Mapping[str, Any],
        *,
        strategy: str = "first_fit",
        bins: int | None = None,
        seed: int | None = None,
        meta_features: Sequence[str] = (),
        alignment: Any = None,
        padding: Any = None,
        max_sequences: int | None = None,
        too_long: str | None = None,
        bos_token_id: int | None = None,
    ) -> IterDataset[Any]:
        """Lays sequences side by side in rows of fixed lengths.

        For each feature, a row also has the number of the sequence that each cell belongs to
        (`..._segment_ids`, from 1; 0 is padding) and its place in it (`..._positions`).

        >>> import numpy as np
        >>> from bushel import MapDataset
        >>> documents = [{"text": np.full(n, n)} for n in (3, 2, 2, 1)]
        >>> stream = MapDataset.source(documents).to_iter_dataset()
        >>> for row in stream.pack({"text": 4}):
        ...     row["text"].tolist(), row["text_segment_ids"].tolist()
        ([3, 3, 3, 1], [1, 1, 1, 2])
        ([2, 2, 2, 2], [1, 1, 2, 2])
        >>> [row["text"].tolist() for row in stream.pack({"text": 5}, strategy="concat_then_split")]
        [[3, 3, 3, 2, 2], [2, 2, 1, 0, 0]]

        Args:
          lengths: the length of a row for each feature. Other features are left out.
          strategy: the row for a sequence: the first open row with room ("first_fit"), or the open
            row in which it leaves the least room ("best_fit"); or all sequences laid end to end and
            cut where a row is full ("concat_then_split").
          bins: how many rows are open at a time; by default 64.
          seed: rows that are closed together come in a random order with this seed; without a seed,
            in the order in which they were opened.
          meta_features: features without segment ids and positions. Those that have no length
            become a list of the values of a row's elements.
          alignment: sequences begin at multiples of these, for each feature.
          padding: the value of cells without a sequence, for each feature, instead of zeros.
          max_sequences: the most sequences in a row.
          too_long: what to do about an element with a sequence longer than its row: "error",
            the default; "truncate", which keeps the beginning; "split" into elements that fit;
            "drop".
          bos_token_id: for "concat_then_split": the first token of each piece in a row becomes
            this one, in all features that are not `meta_features`.
        """
        from bushel.batch.pack_strategies import pack_step

        return self._then(
            pack_step(
                self._own_node(),
                lengths,
                strategy,
                bins,
                seed,
                meta_features,
                alignment,
                padding,
                max_sequences,
                too_long,
                bos_token_id,
            )
        )

    def batch_by_tokens(
        self,
        max_tokens: int,
        *,
        length: Length = None,
        pad_to_multiple_of: int = 1,
        padding: Any = 0,
        max_rows: int | None = None,
        drop_remainder: bool = False,
        lengths_as: str | None = None,
    ) -> IterDataset[Any]:
        """Batches as many neighbours as fit into a budget of tokens: rows times the longest row.

        >>> import numpy as np
        >>> from bushel import MapDataset
        >>> stream = MapDataset.source([2, 3, 1, 5, 1]).map(np.arange).to_iter_dataset()
        >>> for batch in stream.batch_by_tokens(10, padding=-1):
        ...     batch.tolist()
        [[0, 1, -1], [0, 1, 2], [0, -1, -1]]
        [[0, 1, 2, 3, 4], [0, -1, -1, -1, -1]]

        A state counts the batches, rows, tokens and cells so far, exactly: see
        `padding_report`.

        Args:
          max_tokens: the most cells in a batch, including padding. A single element that is
            longer is an error.
          length: the feature whose length counts, or a function of the element. Not needed for
            elements that are arrays.
          pad_to_multiple_of: the longest sequence is padded to a multiple of this, too.
          padding: the value to pad with: one for all arrays of an element, which are padded along
            their first axis; or a dict with a value for each feature that is to be padded, others
            being stacked as they are.
          max_rows: the most elements in a batch.
          drop_remainder: leaves out the last batch, unless it is full.
          lengths_as: the name of a feature that batches get: the lengths of their elements.
        """
        from bushel.batch.batch_by_tokens import batch_by_tokens_step

        return self._then(
            batch_by_tokens_step(
                self._own_node(),
                max_tokens,
                length,
                pad_to_multiple_of,
                padding,
                max_rows,
                drop_remainder,
                lengths_as,
            )
        )

    def bucket_by_length(
        self,
        boundaries: Sequence[int],
        batch_sizes: Sequence[int] | int | None = None,
        *,
        max_tokens: int | None = None,
        length: Length = None,
        pad_to_multiple_of: int = 1,
        pad_to_boundary: bool = False,
        padding: Any = 0,
        window: int = 10_000,
        drop_remainder: bool = False,
        lengths_as: str | None = None,
    ) -> IterDataset[Any]:
        """Batches elements of similar lengths: a full bucket becomes a batch.

        >>> import numpy as np
        >>> from bushel import MapDataset
        >>> stream = MapDataset.source([2, 7, 1, 5, 3]).map(np.arange).to_iter_dataset()
        >>> for batch in stream.bucket_by_length([4, 8], 2):
        ...     batch.tolist()
        [[0, 1], [0, 0]]
        [[0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 0, 0]]
        [[0, 1, 2]]

        After `window` elements all buckets are emptied, in their order, full or not. So no
        element waits longer, however rare its length. A state has the place where the window
        begins and the number of its delivered batches, and restoring it reads at most one
        window again.

        Args:
          boundaries: the greatest length in each bucket, in increasing order.
          batch_sizes: how many elements make a batch in each bucket; one number for all of them,
            or a number for each, and perhaps one more for elements beyond the last boundary,
            which are an error otherwise.
          max_tokens: instead of `batch_sizes`: as many elements as fit into this many cells, each
            padded to its bucket's boundary.
          length: the feature whose length counts, or a function of the element. Elements that
            are arrays need none.
          pad_to_multiple_of: the longest sequence is padded to such a multiple, too.
          pad_to_boundary: pads to the bucket's boundary instead of the longest, so that there are
            no more shapes than buckets.
          padding: as for `batch_by_tokens`.
          window: the number of elements after which buckets are emptied.
          drop_remainder: leaves out the batches that are not full then.
          lengths_as: the name of a feature that batches get: the lengths of their elements.
        """
        from bushel.batch.buckets import bucket_step

        return self._then(
            bucket_step(
                self._own_node(),
                boundaries,
                batch_sizes,
                max_tokens,
                length,
                pad_to_multiple_of,
                pad_to_boundary,
                padding,
                window,
                drop_remainder,
                lengths_as,
            )
        )
