"""Elements that are of other libraries: each imported where one of them is made or compared."""

import io
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np


@attrs.define
class Labelled:
    image: Any
    label: str


@attrs.frozen(slots=False)
class Settled:
    values: Any
    inner: Any = attrs.field(factory=list)


def _torch(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import torch

        return make(torch)

    return made


def _jax(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import jax

        return make(jax)

    return made


def _sparse(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        import scipy.sparse

        return make(scipy.sparse)

    return made


def _pillow(make: Callable[[Any], Any]) -> Callable[[], Any]:
    def made() -> Any:
        from PIL import Image

        return make(Image)

    return made


_PIXELS = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)


def _as_png(images: Any) -> Any:
    """An image that is decoded when somebody looks at it."""
    file = io.BytesIO()
    images.fromarray(_PIXELS).save(file, "PNG")
    return images.open(io.BytesIO(file.getvalue()))


MAKE: dict[str, Callable[[], Any]] = {
    "attrs class": lambda: Labelled(np.arange(6.0).reshape(2, 3), "cat"),
    "frozen attrs class": lambda: Settled(np.arange(4), [Labelled(None, "x")]),
    "torch tensors": _torch(
        lambda torch: [
            torch.arange(6.0).reshape(2, 3),
            torch.arange(6).to(torch.bfloat16),
            torch.tensor(True),
            torch.empty(0, 3, dtype=torch.int8),
            torch.arange(6.0).reshape(2, 3).T,
            torch.arange(10)[3:7],
        ]
    ),
    "large torch tensor": _torch(lambda torch: {"x": torch.arange(300_000.0)}),
    "torch tensor with a gradient": _torch(lambda torch: torch.arange(3.0).requires_grad_()),
    "sparse torch tensor": _torch(lambda torch: torch.eye(3).to_sparse()),
    "jax arrays": _jax(
        lambda jax: {
            "x": jax.numpy.arange(6.0).reshape(2, 3),
            "small": jax.numpy.arange(4, dtype=jax.numpy.bfloat16),
            "scalar": jax.numpy.int32(3),
        }
    ),
    "large jax array": _jax(lambda jax: jax.numpy.arange(100_000)),
    "key of jax": _jax(lambda jax: jax.random.key(3)),
    "sparse matrices": _sparse(
        lambda sparse: [
            make(np.eye(3, 4) * 2.5)
            for make in (sparse.csr_matrix, sparse.csc_array, sparse.coo_array, sparse.lil_matrix)
        ]
    ),
    "large sparse matrix": _sparse(lambda sparse: sparse.eye(20_000, format="csr")),
    "images": _pillow(
        lambda images: [
            images.fromarray(_PIXELS),
            images.fromarray(_PIXELS).convert("L"),
            images.fromarray(_PIXELS).quantize(8),
        ]
    ),
    "image in a file": _pillow(_as_png),
}


def what_is_in(value: Any) -> Any:
    """What there is to compare in a value of another library; None in what is of none of them."""
    kind = type(value)
    library = kind.__module__.partition(".")[0]
    if attrs.has(kind):
        return {field.name: getattr(value, field.name) for field in attrs.fields(kind)}
    if library == "torch":
        dense = value.to_dense() if value.is_sparse else value
        plain = dense.detach().float().numpy()
        told = [str(value.dtype), str(value.layout), value.requires_grad]
        return [*told, plain, () if value.is_sparse else value.stride()]
    if library in ("jax", "jaxlib"):
        import jax

        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            return [str(value.dtype), np.asarray(jax.random.key_data(value))]
        return [str(value.dtype), value.weak_type, np.asarray(value)]
    if library == "scipy":
        entries = value.tocoo()
        return [value.format, value.shape, entries.data, *entries.coords]
    if library == "PIL":
        return [value.mode, value.size, value.format, value.getpalette(), value.tobytes()]
    return None
