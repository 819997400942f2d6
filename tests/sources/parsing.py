"""What records become, in a module that a worker imports in no time."""

from typing import Any

import numpy as np

from bushel import transforms


def parse(record: bytes) -> Any:
    return np.frombuffer(record, np.uint8)


class BushelParse(transforms.Map):
    def map(self, element: bytes) -> Any:
        return parse(element)
