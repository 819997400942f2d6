"""The records of the folders beside this file, which other systems have written.

`write_mds.py`, `write_litdata.py` and `write_energon.py` write them with the packages of these
systems, and read them again with these packages: they have what is here.
"""

import decimal
from typing import Any

import numpy as np

# Encodings of MDS, by the names of columns.
MDS_COLUMNS = {
    "array": "ndarray",
    "array_of_type": "ndarray:int16",
    "array_of_shape": "ndarray:float32:2,3",
    "bytes": "bytes",
    "decimal": "str_decimal",
    "grey": "pil",
    "int": "int",
    "json": "json",
    "long": "str_int",
    "pictures": "list[png]",
    "png": "png",
    "real": "str_float",
    "text": "str",
    **{f"scalar_{name}": name for name in ("uint8", "int16", "uint64", "float16", "float64")},
}
TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "float32", "float64")


def picture(number: int) -> np.ndarray[Any, Any]:
    return (np.arange(12, dtype=np.uint8).reshape(2, 2, 3) + np.uint8(number)) * np.uint8(20)


def mds_records(number: int = 11) -> list[dict[str, Any]]:
    """Records with a value of every encoding; pictures are arrays."""
    return [
        {
            "array": np.arange(2 * n, dtype=(*TYPES, *FLOATS)[(n - 1) % 11]).reshape(n, 2),
            "array_of_type": np.full((300, n) if n == 3 else (n,), -n, np.int16),
            "array_of_shape": np.full((2, 3), n / 4, np.float32),
            "bytes": bytes(range(n)),
            "decimal": decimal.Decimal(n) / 4,
            "grey": picture(n)[:, :, 0],
            "int": -n,
            "json": {"n": [n, None, "é"]},
            "long": 10**20 + n,
            "pictures": [picture(n), picture(n + 1)][: n % 3],
            "png": picture(n),
            "real": n / 3,
            "text": "é" * (n % 4),
            "scalar_uint8": np.uint8(n),
            "scalar_int16": np.int16(-n),
            "scalar_uint64": np.uint64(2**63 + n),
            "scalar_float16": np.float16(n / 2),
            "scalar_float64": np.float64(n / 3),
        }
        for n in range(1, number + 1)
    ]


def small_records(number: int = 6) -> list[dict[str, Any]]:
    return [{"text": "abc" * n, "x": n} for n in range(number)]


def litdata_records(number: int = 7) -> list[dict[str, Any]]:
    """Records with a value of every format that litdata chooses by itself, without pickles."""
    return [
        {
            "flags": (n % 2 == 0, [n / 2, -n]),
            "vector": np.arange(n + 1, dtype=np.uint16),
            "matrix": np.arange(2 * n + 2, dtype=np.float32).reshape(2, n + 1),
            "tensor": {"one": np.arange(n + 2), "two": np.full((2, 2), n, np.float32)},
            "raw": bytes(range(n)),
            "text": "é" * n,
            "picture": picture(n),
        }
        for n in range(number)
    ]


JSON_VALUES: list[Any] = [
    *({}, [], {"a": 1, "bc": -(2**40)}, {"a": 1.5}, {"a": "é"}, {"a": None}, {"a": True}),
    *({"a": [1, 2]}, {"a": [1.5, 2]}, {"a": ["x", "yz"]}, {"a": [True]}, {"a": {"b": {"c": 1}}}),
    *([1, 2, 3], [1.5], ["a", "é"], [True, False], [[1], [2, 3]], {"a": 2**70}),
    [{"a": 1, "b": "x"}, {"a": None, "b": "yz"}],
    [{"a": 1.5}, {"a": True}],
]


def json_records() -> list[dict[str, Any]]:
    lists = [value if isinstance(value, list) else [value] for value in JSON_VALUES]
    return [{"n": n, "value": value} for n, value in enumerate(lists)]


def token_documents() -> list[np.ndarray[Any, Any]]:
    return [np.arange(10 * n, 10 * n + 7 + n, dtype=np.uint16) for n in range(5)]


def token_blocks() -> list[np.ndarray[Any, Any]]:
    """Blocks of four tokens, as litdata cuts them from chunks of at most 20."""
    documents = token_documents()
    chunks = [documents[:2], documents[2:4], documents[4:]]
    joined = [np.concatenate(chunk) for chunk in chunks]
    return [chunk[i : i + 4] for chunk in joined for i in range(0, len(chunk) - 3, 4)]
