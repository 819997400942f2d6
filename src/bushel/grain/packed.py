"""Grain's dataset classes for packing and rebatching, and `padding_report`."""

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bushel.batch.batch_by_tokens import COUNTED
from bushel.batch.pack_options import names_of, pack_node, packing_of
from bushel.batch.rebatch import RebatchNode
from bushel.batch.split import SplitNode, check_bos, check_lengths
from bushel.core.arguments import whole
from bushel.core.state import walk_states
from bushel.dataset import IterDataset, StreamNodeDataset, stream_node
from bushel.errors import PlanError, StateError


class _PackedDataset(StreamNodeDataset[dict[str, Any]]):
    _best_fit = False

    def __init__(
        self,
        parent: IterDataset[Any],
        *,
        length_struct: Any,
        num_packing_bins: int,
        seed: int = 0,
        shuffle_bins: bool = True,
        shuffle_bins_group_by_feature: str | None = None,
        meta_features: Sequence[str] = (),
        pack_alignment_struct: Any = None,
        padding_struct: Any = None,
        max_sequences_per_bin: int | None = None,
    ) -> None:
        packing = packing_of(
            length_struct,
            whole(num_packing_bins, "num_packing_bins"),
            self._best_fit,
            meta_features,
            pack_alignment_struct,
            padding_struct,
            max_sequences_per_bin,
        )
        node = pack_node(
            stream_node(parent), packing, seed, bool(shuffle_bins), shuffle_bins_group_by_feature
        )
        super().__init__(node, parent)


class FirstFitPackIterDataset(_PackedDataset):
    """Packs sequences into rows of fixed length, each into the first open row with room for it.

    Rows have, beside each feature, which of their sequences a cell belongs to
    (`..._segment_ids`, from 1; 0 is padding) and its place in it (`..._positions`).

    >>> import numpy as np
    >>> from bushel import MapDataset
    >>> documents = [{"text": np.full(n, n)} for n in (3, 2, 2, 1)]
    >>> stream = MapDataset.source(documents).to_iter_dataset()
    >>> for row in FirstFitPackIterDataset(stream, length_struct={"text": 4}, num_packing_bins=2):
    ...     row["text"].tolist(), row["text_segment_ids"].tolist(), row["text_positions"].tolist()
    ([3, 3, 3, 1], [1, 1, 1, 2], [0, 1, 2, 0])
    ([2, 2, 2, 2], [1, 1, 2, 2], [0, 1, 0, 1])

    Args:
      parent: a stream of dicts of arrays, the sequence on the first axis.
      length_struct: the length of a row for each feature; other features are left out.
      num_packing_bins: how many rows are open at a time.
      seed: for the order of the rows that are closed together.
      shuffle_bins: whether those come in random order.
      shuffle_bins_group_by_feature: keeps rows with like values of this feature together.
      meta_features: features without segment ids and positions. Those that have no length
        become a list of the values of a row's elements.
      pack_alignment_struct: sequences begin at multiples of these.
      padding_struct: what fills the cells of no sequence, instead of zeros.
      max_sequences_per_bin: at most so many sequences in a row.
    """


class BestFitPackIterDataset(_PackedDataset):
    """The same as `FirstFitPackIterDataset`, but each into the row where it leaves least room."""

    _best_fit = True


class BOSHandling(enum.Enum):
    """What `ConcatThenSplitIterDataset` does about begin-of-sequence tokens."""

    DO_NOTHING = enum.auto()
    REPLACE_FIRST_TOKEN_WITH_BOS = enum.auto()


class ConcatThenSplitIterDataset(StreamNodeDataset[dict[str, Any]]):
    """Lays sequences end to end and cuts them into rows of exactly the wanted length.

    >>> import numpy as np
    >>> from bushel import MapDataset
    >>> documents = [{"text": np.full(n, n)} for n in (3, 2, 4)]
    >>> stream = MapDataset.source(documents).to_iter_dataset()
    >>> for row in ConcatThenSplitIterDataset(stream, length_struct={"text": 4}):
    ...     row["text"].tolist(), row["text_segment_ids"].tolist(), row["text_positions"].tolist()
    ([3, 3, 3, 2], [1, 1, 1, 2], [0, 1, 2, 0])
    ([2, 4, 4, 4], [1, 2, 2, 2], [0, 0, 1, 2])
    ([4, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0])

    Args:
      parent: a stream of dicts with exactly the features of `length_struct`.
      length_struct: the length of a row for each feature.
      meta_features: features that are never split, and have no segment ids and positions.
      split_full_length_features: whether an element that is exactly a row may be split; else
        it becomes a row of its own, after the one that is open.
      bos_handling: whether the first token of each piece in a row becomes a certain one.
      bos_features: the features in which it does.
      bos_token_id: the token.
    """

    def __init__(
        self,
        parent: IterDataset[Any],
        *,
        length_struct: Mapping[str, int],
        meta_features: Collection[str] = (),
        split_full_length_features: bool = True,
        bos_handling: BOSHandling = BOSHandling.DO_NOTHING,
        bos_features: Collection[str] = (),
        bos_token_id: int | None = None,
    ) -> None:
        if not isinstance(bos_handling, BOSHandling):
            raise TypeError(
                f"`bos_handling` is a member of BOSHandling, and not {bos_handling!r:.100}."
            )
        replaces = bos_handling is BOSHandling.REPLACE_FIRST_TOKEN_WITH_BOS
        metas = frozenset(names_of(meta_features, "meta_features"))
        bos = frozenset(names_of(bos_features, "bos_features"))
        check_bos(replaces, bos, bos_token_id, metas)
        node = SplitNode(
            stream_node(parent),
            check_lengths(length_struct),
            metas,
            bool(split_full_length_features),
            bos,
            None if bos_token_id is None else whole(bos_token_id, "bos_token_id"),
        )
        super().__init__(node, parent)


class RebatchIterDataset(StreamNodeDataset[Any]):
    """Changes the size of batches, joining and cutting them along their first axis.

    >>> from bushel import MapDataset
    >>> batches = MapDataset.range(7).batch(2).to_iter_dataset()
    >>> [batch.tolist() for batch in RebatchIterDataset(batches, 3)]
    [[0, 1, 2], [3, 4, 5], [6]]
    """

    def __init__(
        self, parent: IterDataset[Any], batch_size: int, drop_remainder: bool = False
    ) -> None:
        size = whole(batch_size, "batch_size")
        if size <= 0:
            raise PlanError(f"batch_size must be positive, and is {size}.")
        super().__init__(RebatchNode(stream_node(parent), size, bool(drop_remainder)), parent)


@dataclass(frozen=True)
class PaddingReport:
    """How much of all batches so far is padding."""

    batches: int
    rows: int
    tokens: int
    # Those of the batches, padding included.
    cells: int

    @property
    def padding(self) -> float:
        """The share of cells that are padding."""
        return 1 - self.tokens / self.cells if self.cells else 0.0


def padding_report(iterator_or_state: Any) -> PaddingReport:
    """Tells how much of the batches of `batch_by_tokens` was padding, up to here.

    It counts from the beginning of the stream, whatever was saved and restored in between: the
    counts are in the state. Of several such steps (parts of a mixture, say) it tells the sum.

    >>> import numpy as np
    >>> from bushel import MapDataset
    >>> stream = MapDataset.source([2, 3, 1, 5, 1]).map(np.arange).to_iter_dataset()
    >>> iterator = iter(stream.batch_by_tokens(10))
    >>> _ = next(iterator)
    >>> padding_report(iterator)
    PaddingReport(batches=1, rows=3, tokens=6, cells=9)

    Args:
      iterator_or_state: an iterator of the pipeline, or what its `get_state()` returned.
    """
    state = iterator_or_state
    if hasattr(state, "get_state"):
        state = state.get_state()
    said = [part.get("padding") for part in walk_states(state)]
    counts = [found for found in said if isinstance(found, dict) and found.keys() == set(COUNTED)]
    if not counts:
        raise StateError(
            "`padding_report` takes an iterator with `batch_by_tokens` in its pipeline, or a state "
            f"of one, and found no counts in {iterator_or_state!r:.100}."
        )
    return PaddingReport(*(sum(count[name] for count in counts) for name in COUNTED))
