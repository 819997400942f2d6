"""`ShardOptions` and its kin: which part of the data this process reads."""

from dataclasses import dataclass

from bushel.errors import PlanError


@dataclass(frozen=True)
class ShardOptions:
    """Shard number `shard_index` of `shard_count`.

    `drop_remainder` makes all shards equally long by leaving out what does not divide.
    """

    shard_index: int
    shard_count: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        if self.shard_count <= 0:
            raise PlanError(f"shard_count must be positive, and is {self.shard_count}.")
        if not 0 <= self.shard_index < self.shard_count:
            raise PlanError(
                f"shard_index must be between 0 and shard_count - 1, and is {self.shard_index} "
                f"of {self.shard_count}."
            )


class NoSharding(ShardOptions):
    """The whole: shard 0 of 1."""

    def __init__(self) -> None:
        super().__init__(shard_index=0, shard_count=1, drop_remainder=False)


class ShardByJaxProcess(ShardOptions):
    """One shard for each process of a JAX job; the whole where JAX is not installed."""

    def __init__(self, drop_remainder: bool = False) -> None:
        from bushel.deliver.device import process_index_and_count

        index, count = process_index_and_count()
        super().__init__(shard_index=index, shard_count=count, drop_remainder=drop_remainder)


def even_split(num_examples: int, options: ShardOptions) -> tuple[int, int]:
    """Returns where a shard's contiguous part begins and ends.

    >>> [even_split(7, ShardOptions(i, 3)) for i in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    each, rest = divmod(num_examples, options.shard_count)
    index = options.shard_index
    if options.drop_remainder:
        return index * each, (index + 1) * each
    start = index * each + min(index, rest)
    return start, start + each + (1 if index < rest else 0)
