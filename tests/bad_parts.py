"""Records that cannot be read or made, in a module that a worker imports in no time."""

from bushel import transforms


def parse(number: int) -> int:
    if number % 7 == 3:
        raise ValueError(f"bad {number}")
    return number * 10


class Records:
    """A source that knows where its records are."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, key: int) -> int:
        if key % 9 == 4:
            raise OSError("damaged")
        return key

    def place_of(self, key: int) -> tuple[str, int, int]:
        return "data.bin", key, key * 100


class Parse(transforms.Map):
    def map(self, element: int) -> int:
        return parse(element)


def with_index(index: int, number: int) -> tuple[int, int]:
    return index, number
