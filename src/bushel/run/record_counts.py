"""For statistics: how many records each step handled, by arithmetic on the positions read."""

from collections.abc import Iterator, Sequence

from bushel.core.node import Drop, Each, Expand, Fold, Guard, Node, Order, Place, Source, Zip


def records_read(node: Node, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[Node, int]]:
    """The steps of a dataset, each with the number of its elements that were needed.

    Without the parts of a mixture, whose numbers are unknown without evaluating its order.

    >>> from bushel import MapDataset
    >>> dataset = MapDataset.range(10).map(abs).batch(4)
    >>> [count for _, count in records_read(dataset._own_node(), [(0, 3), (3, 4)])]
    [4, 14, 14]
    """
    counts = [stop - start for start, stop in ranges]
    waiting = [(node, sum(counts), list(ranges))]
    while waiting:
        node, count, spans = waiting.pop()
        if not isinstance(node, Place):
            yield node, count
        if isinstance(node, (Source, Order)):
            # Which positions an order leads to does not matter: their number is the same.
            spans = [(0, count)] if not isinstance(node, Source) else []
        if isinstance(node, Fold):
            spans = [(_before(node, start), _before(node, stop)) for start, stop in spans]
            count = sum(stop - start for start, stop in spans)
        elif isinstance(node, Expand):
            fan_out = node.fan_out
            spans = [(start // fan_out, -(-stop // fan_out)) for start, stop in spans]
            count = sum(stop - start for start, stop in spans)
        if isinstance(node, (Each, Drop, Expand, Fold, Guard, Order, Place, Zip)):
            waiting.extend((part, count, spans) for part in reversed(node.inputs))


def _before(fold: Fold, groups: int) -> int:
    """The number of input elements of the first so many groups of a fold."""
    length, per_epoch = fold.input.length(), fold.length()
    if not per_epoch:
        return groups * fold.group_size
    epochs, rest = divmod(groups, per_epoch)
    of_an_epoch = min(length, per_epoch * fold.group_size)
    return epochs * of_an_epoch + min(rest * fold.group_size, length)
