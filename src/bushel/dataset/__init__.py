"""`MapDataset` and `IterDataset`: the methods that users chain."""

from bushel.dataset.random_access import (
    MapDataset as MapDataset,
)
from bushel.dataset.random_access import (
    MapNodeDataset as MapNodeDataset,
)
from bushel.dataset.random_access import (
    check_parts as check_parts,
)
from bushel.dataset.random_access import (
    map_node as map_node,
)
from bushel.dataset.stream import (
    IterDataset as IterDataset,
)
from bushel.dataset.stream import (
    StreamNodeDataset as StreamNodeDataset,
)
from bushel.dataset.stream import (
    stream_node as stream_node,
)
