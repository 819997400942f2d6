"""The structure of elements: how each is written as named fields and restored.

An element is a dict or tuple, perhaps nested, with fields at the ends; or it is a single field. All
elements of a dataset have the same fields, each of one kind.

    {"text": "a", "image": array(...), "size": (640, 480)}
    text: text    image: array of |u1, 3 axes    size/0: int    size/1: int
"""

from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy as np

from bushel.core.dtypes import dtype_of, text_of
from bushel.core.frozen import frozen
from bushel.errors import FileError, PlanError

# The kinds of fields. "json" is for values without a kind of their own: lists, None, or values of
# several kinds, as long as JSON can hold them.
KINDS = ("array", "scalar", "int", "float", "bool", "text", "bytes", "json")
_PLAIN: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "text",
    bytes: "bytes",
    bytearray: "bytes",
    np.str_: "text",
    np.bytes_: "bytes",
}
_AS_JSON = {"int", "float", "bool", "text", "json"}
# More nesting than elements for training have.
_DEEPEST = 64

# How fields are nested: the number of one, or the name and the parts of a dict or tuple.
Tree: TypeAlias = Any
Path: TypeAlias = tuple[str, ...]


class MisfitError(Exception):
    """A part of an element does not fit: which one, and why."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name!r} {problem}" if name else f"the element {problem}")


@frozen
class Field:
    """One field of an element."""

    # Empty if the element is nothing but this field.
    path: Path
    kind: str
    # For arrays and numpy's scalars; and the number of axes of arrays.
    dtype: "np.dtype[Any] | None" = None
    ndim: int = 0

    @property
    def name(self) -> str:
        """The name of the field, if fields have names."""
        return "/".join(self.path) or {"bytes": "data", "text": "text"}.get(self.kind, "value")

    def __str__(self) -> str:
        if self.dtype is None:
            return self.kind
        axes = f", {self.ndim} ax{'i' if self.ndim == 1 else 'e'}s"
        return f"{self.kind} of {self.dtype}{axes if self.kind == 'array' else ''}"

    def check(self, value: Any) -> Any:
        """The value, if it is of this kind; otherwise raises."""
        kind = type(value)
        if self.kind == "array":
            if not isinstance(value, np.ndarray):
                raise MisfitError(self.name, f"is {_a(value)} here, and {self} elsewhere")
            if type(value) is not np.ndarray:
                _refuse_masked(self.name, value)
            if value.dtype != self.dtype or value.ndim != self.ndim:
                here = Field(self.path, "array", value.dtype, value.ndim)
                raise MisfitError(self.name, f"is {here} here, and {self} elsewhere")
            return value
        if self.kind == "scalar":
            if isinstance(value, np.generic) and value.dtype == self.dtype:
                return value
        elif self.kind == "json":
            if is_json(value):
                return value
            raise MisfitError(self.name, f"is {_a(value)}, which JSON cannot say")
        elif _PLAIN.get(kind) == self.kind:
            return bytes(value) if self.kind == "bytes" else value
        raise MisfitError(self.name, f"is {_a(value)} here, and {self} elsewhere")


def _refuse_masked(name: str, value: Any) -> None:
    if isinstance(value, np.ma.MaskedArray):
        raise MisfitError(
            name,
            "is a masked array, and no format holds what is masked: write `.filled(...)` of it, "
            "and `np.ma.getmaskarray(...)` as a field of its own",
        )


def _a(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}"
    if value is None:
        return "None"
    name = type(value).__name__
    return f"a{'n' * (name[0] in 'aeiou')} {name}"


def is_json(value: Any, depth: int = 0) -> bool:
    """Whether JSON can hold a value, so that the same value is read again."""
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return True
    if kind is float:
        return bool(np.isfinite(value))
    if depth > _DEEPEST:
        return False
    if kind is list:
        return all(is_json(part, depth + 1) for part in value)
    if kind is dict:
        return all(type(name) is str and is_json(part, depth + 1) for name, part in value.items())
    return False


class ElementLayout:
    """The fields of elements, and how an element is built from them."""

    def __init__(self, tree: Tree, fields: Iterable[Field]) -> None:
        self.tree, self.fields = tree, tuple(fields)
        names: set[str] = set()
        for field in self.fields:
            for name in (field.name, *([f"{field.name}/shape"] * has_shape(field))):
                if name in names:
                    raise PlanError(f"two fields of these elements would be called {name!r}.")
                names.add(name)
        # The names of a dict of fields, as most elements are.
        self._names: list[str] | None = None
        if isinstance(tree, list) and tree[0] == "dict" and all(type(x) is int for _, x in tree[1]):
            self._names = [name for name, _ in tree[1]]

    @property
    def is_one(self) -> bool:
        """Whether an element is one field."""
        return type(self.tree) is int

    @property
    def is_flat(self) -> bool:
        """Whether an element is a dict of fields."""
        return self._names is not None

    def values(self, element: Any) -> list[Any]:
        """The values of an element's fields; raises a MisfitError if it has another structure."""
        if self._names is not None and type(element) is dict and len(element) == len(self._names):
            try:
                found = [element[name] for name in self._names]
            except KeyError as missing:
                raise MisfitError(str(missing.args[0]), "is missing here") from None
        else:
            found = []
            _collect(self.tree, element, (), found)
        return [field.check(value) for field, value in zip(self.fields, found, strict=True)]

    def element(self, values: list[Any]) -> Any:
        """Builds the element with these values."""
        if self._names is not None:
            return dict(zip(self._names, values, strict=True))
        return _rebuilt(self.tree, values)

    def to_json(self) -> dict[str, Any]:
        """The layout as plain values."""
        fields = []
        for field in self.fields:
            told: dict[str, Any] = {"path": list(field.path), "kind": field.kind}
            if field.dtype is not None:
                told["dtype"] = text_of(field.dtype)
            if field.kind == "array":
                told["ndim"] = field.ndim
            fields.append(told)
        return {"tree": self.tree, "fields": fields}

    @staticmethod
    def from_json(told: Any, where: str) -> "ElementLayout":
        """A layout from plain values, which may be anything; a FileError if they are invalid."""
        try:
            fields = [_field(field) for field in told["fields"]]
            seen: list[int] = []
            _check_tree(told["tree"], seen, 0)
            if seen != list(range(len(fields))):
                raise ValueError("its fields are not those of its tree")
            return ElementLayout(told["tree"], fields)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ImportError) as error:
            raise FileError(
                f"the description of elements in {where} is damaged ({error}): {told!r:.200}."
            ) from None


def has_shape(field: Field) -> bool:
    """Whether the shape of an array is written beside it: that of a list is its length."""
    return field.kind == "array" and field.ndim != 1


def _field(told: Any) -> Field:
    kind, path = told["kind"], told["path"]
    if kind not in KINDS or not isinstance(path, list) or not all(type(n) is str for n in path):
        raise ValueError(f"{told!r:.100} is no field")
    if kind not in ("array", "scalar"):
        return Field(tuple(path), kind)
    ndim = told.get("ndim", 0)
    if type(ndim) is not int or not 0 <= ndim <= 64:
        raise ValueError(f"an array of {ndim!r:.100} axes")
    return Field(tuple(path), kind, dtype_of(told["dtype"]), ndim)


def _check_tree(tree: Any, seen: list[int], depth: int) -> None:
    if type(tree) is int:
        seen.append(tree)
        return
    kind, parts = tree
    if depth > _DEEPEST or kind not in ("dict", "tuple") or not isinstance(parts, list):
        raise ValueError("its tree is none")
    for part in parts:
        if kind == "dict":
            name, part = part
            if type(name) is not str:
                raise ValueError(f"{name!r:.100} is no name")
        _check_tree(part, seen, depth + 1)


def _collect(tree: Tree, element: Any, path: Path, found: list[Any]) -> None:
    if type(tree) is int:
        found.append(element)
        return
    kind, parts = tree
    name = "/".join(path)
    if kind == "tuple":
        if type(element) is not tuple or len(element) != len(parts):
            raise MisfitError(name, f"is {_a(element)} here, and a tuple of {len(parts)} elsewhere")
        for number, (part, value) in enumerate(zip(parts, element, strict=True)):
            _collect(part, value, (*path, str(number)), found)
        return
    if type(element) is not dict:
        raise MisfitError(name, f"is {_a(element)} here, and a dict elsewhere")
    names = [part[0] for part in parts]
    if element.keys() != set(names):
        for extra in element.keys() - set(names):
            raise MisfitError("/".join((*path, str(extra))), "is here, and not elsewhere")
        for missing in set(names) - element.keys():
            raise MisfitError("/".join((*path, missing)), "is missing here")
    for part_name, part in parts:
        _collect(part, element[part_name], (*path, part_name), found)


def _rebuilt(tree: Tree, values: list[Any]) -> Any:
    if type(tree) is int:
        return values[tree]
    kind, parts = tree
    if kind == "tuple":
        return tuple(_rebuilt(part, values) for part in parts)
    return {name: _rebuilt(part, values) for name, part in parts}


# From elements to their layout.


@frozen
class _ElementParts:
    """A dict or tuple of an element: by name, or by number."""

    kind: str
    path: Path
    parts: "dict[str, Field | _ElementParts]"


def layout_of(
    elements: Iterable[Any], as_json: Iterable[str] = (), alike: bool = True
) -> ElementLayout:
    """The layout that all of these elements have; `as_json` names fields to store as JSON.

    Without `alike`, elements with different fields are JSON as a whole.

    >>> layout = layout_of([{"x": np.arange(3), "y": (1, "a")}, {"x": np.arange(5), "y": (2, "")}])
    >>> [f"{field.name}: {field}" for field in layout.fields]
    ['x: array of int64, 1 axis', 'y/0: int', 'y/1: text']
    """
    wanted = set(as_json)
    made: Field | _ElementParts | None = None
    for element in elements:
        shape = _shape(element, (), wanted)
        made = shape if made is None else _merged(made, shape, alike)
    if made is None:
        raise PlanError("there is no element, so the fields of elements are not known.")
    fields: list[Field] = []
    tree = _numbered(made, fields)
    for name in wanted - {field.name for field in fields if field.kind == "json"}:
        there = ", ".join(field.name for field in fields)
        raise PlanError(f"these elements have no field {name!r} to be JSON; they have {there}.")
    return ElementLayout(tree, fields)


def _shape(value: Any, path: Path, as_json: set[str]) -> "Field | _ElementParts":
    """The structure of a value: a field, or the parts of a dict or tuple."""
    name = "/".join(path)
    if len(path) > _DEEPEST:
        raise MisfitError(name, "is nested too deeply")
    kind = type(value)
    if path and name in as_json:
        return Field(path, "json")
    if kind is dict:
        for key in value:
            if type(key) is not str or not key:
                raise MisfitError(name, f"has the key {key!r:.100}, and fields go by names")
        parts = {key: _shape(part, (*path, key), as_json) for key, part in value.items()}
        return _ElementParts("dict", path, parts)
    if kind is tuple:
        numbered = {str(number): part for number, part in enumerate(value)}
        parts = {key: _shape(part, (*path, key), as_json) for key, part in numbered.items()}
        return _ElementParts("tuple", path, parts)
    if kind in _PLAIN:
        return Field(path, _PLAIN[kind])
    if isinstance(value, (np.ndarray, np.generic)):
        if text_of(value.dtype) is None:
            raise MisfitError(name, f"is of {value.dtype}, a type that no file can name")
        _refuse_masked(name, value)
        of_array = isinstance(value, np.ndarray)
        return Field(path, "array" if of_array else "scalar", value.dtype, value.ndim)
    if is_json(value):
        return Field(path, "json")
    if kind is list:
        problem = "is a list of what JSON cannot say: make an array of it, or a tuple"
    else:
        problem = (
            f"is {_a(value)}, and elements are made of arrays, numbers, text, bytes, and dicts and "
            "tuples of them (lists and None as JSON)"
        )
    raise MisfitError(name, problem)


def _merged(
    one: "Field | _ElementParts", other: "Field | _ElementParts", alike: bool
) -> "Field | _ElementParts":
    """The structure of two elements, if they have the same."""
    if isinstance(one, Field) and isinstance(other, Field):
        if one.kind == other.kind and one.dtype == other.dtype and one.ndim == other.ndim:
            return one
        if {one.kind, other.kind} <= _AS_JSON:
            return Field(one.path, "json")
        raise MisfitError(one.name, f"is {one} in one element, and {other} in another")
    if (
        isinstance(one, _ElementParts)
        and isinstance(other, _ElementParts)
        and one.kind == other.kind
    ):
        if one.parts.keys() == other.parts.keys():
            parts = {
                name: _merged(part, other.parts[name], alike) for name, part in one.parts.items()
            }
            return _ElementParts(one.kind, one.path, parts)
        differ = sorted(one.parts.keys() ^ other.parts.keys())
        if not one.path and alike:
            raise MisfitError(
                differ[0],
                "is in some elements only: give it to all of them, as None where it is not",
            )
    if _is_plain(one) and _is_plain(other) and (one.path or not alike):
        return Field(one.path, "json")
    raise MisfitError("/".join(one.path), "has other parts in one element than in another")


def _is_plain(shape: "Field | _ElementParts") -> bool:
    if isinstance(shape, Field):
        return shape.kind in _AS_JSON
    return shape.kind == "dict" and all(map(_is_plain, shape.parts.values()))


def _numbered(shape: "Field | _ElementParts", fields: list[Field]) -> Tree:
    if isinstance(shape, Field):
        fields.append(shape)
        return len(fields) - 1
    if shape.kind == "tuple":
        return ["tuple", [_numbered(part, fields) for part in shape.parts.values()]]
    return ["dict", [[name, _numbered(part, fields)] for name, part in shape.parts.items()]]
