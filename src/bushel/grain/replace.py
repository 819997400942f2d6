"""bushel under Grain's name, for programs whose imports are not one's own to change."""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

# Grain's public modules.
_MODULES = {
    f"grain{name}": f"bushel{name}"
    for name in (
        "",
        ".checkpoint",
        ".constants",
        ".experimental",
        ".multiprocessing",
        ".python",
        ".python.experimental",
        ".samplers",
        ".sharding",
        ".sources",
        ".transforms",
    )
}


def replace_grain() -> None:
    """Has `import grain` import bushel, in this process and from now on.

    It is for libraries that import Grain themselves; a program of one's own says `import bushel as
    grain`. Call it before anything imports Grain, which need not be installed. What there is of
    Grain beyond its public modules, `grain._src`, is not found.

    >>> import subprocess, sys
    >>> program = "import bushel; bushel.replace_grain(); import grain.python as g; print(g.Batch)"
    >>> print(subprocess.check_output([sys.executable, "-c", program], text=True).strip())
    <class 'bushel.transforms.base.Batch'>
    """
    bushel = sys.modules["bushel"]
    if sys.modules.get("grain") is bushel:
        return
    loaded = next((name for name in sys.modules if name.split(".")[0] == "grain"), None)
    if loaded is not None:
        raise ImportError(
            f"`{loaded}` is imported already, and whoever did so has the classes of Grain. Call "
            "`bushel.replace_grain()` first of all: before the import of the library that imports "
            "Grain."
        )
    sys.meta_path.insert(0, _GrainFinder())


class _GrainFinder(MetaPathFinder, Loader):
    """Finds modules of bushel under the names of Grain's."""

    def __init__(self) -> None:
        self._specs: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if name.split(".")[0] != "grain":
            return None
        if name not in _MODULES:
            # (bushel's own modules would be found otherwise, and loaded once more.)
            raise ModuleNotFoundError(
                f"No module named {name!r}: bushel is in Grain's place (`bushel.replace_grain()`), "
                "and has its public modules.",
                name=name,
            )
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(_MODULES[spec.name])
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module stays what it is: the import has made the spec of the other name its own.
        assert module.__spec__ is not None
        module.__spec__ = self._specs.pop(module.__spec__.name)
