"""The permutations of many shuffles, computed together: one for each part of a mixture.

In a mixture of a thousand shuffled parts, a block has a few positions of each. Permuting a few
positions costs as much as permuting hundreds, so the positions of all parts are permuted together.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bushel.core.positions import Keys, Positions, grouped
from bushel.order.permutation import enough_for_whole, permute_each, whole_permutation

# In a shorter range the walk is long (see `order/permutation.py`): then whole permutations are
# computed, and kept as long as they are in use. That takes as long as walking some dozen positions,
# so the first positions of each range walk.
_SHORT = 4096


class Permutations:
    """Shuffles of ranges, each with a length and a seed of its own."""

    def __init__(self, lengths: Sequence[int], seeds: Sequence[int]) -> None:
        self._lengths = np.array(lengths, dtype=np.int64)
        self._seeds = np.array(seeds, dtype=np.int64)
        self._any_short = int(self._lengths.min()) <= _SHORT
        self._all_short = int(self._lengths.max()) <= _SHORT
        # The number of positions of each range that have walked.
        self._walked = np.zeros(len(lengths), dtype=np.int64)
        self._enough = np.array([enough_for_whole(length - 1) for length in lengths])
        # Whole permutations by range and seed, the last used at the end. Replaced as a whole.
        self._whole: dict[tuple[int, int], npt.NDArray[np.uint16]] = {}

    def locate(self, which: Keys, positions: Positions) -> Positions:
        """Maps positions; `numbers` has the shuffle of each."""
        lengths = self._lengths.take(which)
        epochs = positions // lengths
        seeds = self._seeds.take(which)
        if not epochs.any():
            return self._permuted(which, positions, lengths, seeds)
        seeds = (seeds + epochs) & 0xFFFFFFFF
        images = self._permuted(which, positions - epochs * lengths, lengths, seeds)
        # A later epoch that exists at all is within 64 bits, but perhaps not all of it.
        furthest = int((lengths.astype(np.float64) * (epochs + 1)).max())
        if furthest < 1 << 62:
            return images + epochs * lengths
        far: Positions = images.astype(object) + epochs.astype(object) * lengths
        return far

    def _permuted(
        self, which: Keys, offsets: Positions, lengths: Positions, seeds: Positions
    ) -> Positions:
        if not self._any_short:
            return permute_each(offsets, lengths - 1, seeds)
        images = np.empty(len(offsets), dtype=np.int64)
        short = lengths <= _SHORT
        if not self._all_short:
            long = (~short).nonzero()[0]
            images[long] = permute_each(
                offsets.take(long), lengths.take(long) - 1, seeds.take(long)
            )
        walks = short & ~self._whole_pays(which)
        if walks.any():
            mine = walks.nonzero()[0]
            images[mine] = permute_each(
                offsets.take(mine), lengths.take(mine) - 1, seeds.take(mine)
            )
            short &= ~walks
        mine = short.nonzero()[0]
        images[mine] = self._by_whole(which.take(mine), offsets.take(mine), seeds.take(mine))
        return images

    def _whole_pays(self, which: Keys) -> npt.NDArray[np.bool_]:
        """Whether, with these, enough positions of each one's range were asked for."""
        if (self._walked >= self._enough).all():
            return np.ones(len(which), dtype=bool)
        self._walked = self._walked + np.bincount(which, minlength=len(self._walked))
        pays: npt.NDArray[np.bool_] = (self._walked >= self._enough).take(which)
        return pays

    def _by_whole(self, which: Keys, offsets: Positions, seeds: Positions) -> Positions:
        images = np.empty(len(offsets), dtype=np.int64)
        known, used = self._whole, {}
        for code, mine in grouped(which << 32 | seeds):
            part, seed = code >> 32, code & 0xFFFFFFFF
            whole = known.get((part, seed))
            if whole is None:
                length = int(self._lengths[part])
                whole = whole_permutation(length - 1, seed).astype(np.uint16)
            used[part, seed] = whole
            images[mine] = whole.take(offsets.take(mine))
        if any(key not in known for key in used):
            # One for each range, and those that this block needed: ranges are read epoch by epoch.
            latest = {part: (part, seed) for part, seed in (*known, *used)}
            self._whole = {
                **{key: known[key] for key in latest.values() if key in known},
                **used,
            }
        return images
