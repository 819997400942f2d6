"""`replace_grain`: libraries that import Grain get bushel instead, in workers too."""

import importlib
import sys
from collections.abc import Sequence
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
        ".monitoring",
        ".multiprocessing",
        ".python",
        ".python.experimental",
        ".samplers",
        ".sharding",
        ".sources",
        ".transforms",
    )
}


def replace_grain(stand_ins: Sequence[str] = ()) -> None:
    """Makes `import grain` import bushel, in this process and from now on.

    It is for libraries that import Grain themselves; your own program says `import bushel as
    grain`. Call it before anything imports Grain, which need not be installed. Workers do the same.
    Modules of Grain that are not public, `grain._src`, are not found.

    >>> import subprocess, sys
    >>> program = "import bushel; bushel.replace_grain(); import grain.python as g; print(g.Batch)"
    >>> print(subprocess.check_output([sys.executable, "-c", program], text=True).strip())
    <class 'bushel.transforms.base.Batch'>

    Args:
      stand_ins: names of private modules that a library imports all the same. Whatever it asks of
        them is a class, which it can subclass, and which is an error when an object of it is made.
    """
    finder = _finder()
    if finder is not None:
        finder.stand_ins = tuple(dict.fromkeys([*finder.stand_ins, *stand_ins]))
        return
    loaded = next((name for name in sys.modules if name.split(".")[0] == "grain"), None)
    if loaded is not None:
        raise ImportError(
            f"`{loaded}` is imported already, so Grain's own classes are in use. Call "
            "`bushel.replace_grain()` earlier: before the import of the library that imports "
            "Grain."
        )
    sys.meta_path.insert(0, _GrainFinder(tuple(stand_ins)))


def _finder() -> "_GrainFinder | None":
    return next((finder for finder in sys.meta_path if isinstance(finder, _GrainFinder)), None)


def for_worker(value: Any) -> Any:
    """The value in a form to pickle for a worker: there, too, Grain is replaced first."""
    finder = _finder()
    return value if finder is None else _AfterReplacement(finder.stand_ins, value)


class _Replacement:
    """Has no content; unpickling it replaces Grain."""

    def __init__(self, stand_ins: Sequence[str]) -> None:
        self._stand_ins = stand_ins

    def __reduce__(self) -> tuple[Any, ...]:
        return replace_grain, (self._stand_ins,)


class _AfterReplacement:
    """Unpickles as the value, after the replacement."""

    def __init__(self, stand_ins: Sequence[str], value: Any) -> None:
        self._replacement, self._value = _Replacement(stand_ins), value

    def __reduce__(self) -> tuple[Any, ...]:
        return _second, (self._replacement, self._value)


def _second(_: None, value: Any) -> Any:
    return value


class _GrainFinder:
    """Finds modules of bushel under the names of Grain's, and loads them.

    (Not a subclass of what `importlib.abc` has for it, which workers would have to import.)
    """

    def __init__(self, stand_ins: tuple[str, ...]) -> None:
        self.stand_ins = stand_ins
        self._specs: dict[str, Any] = {}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if name.split(".")[0] != "grain":
            return None
        if any(f"{module}.".startswith(f"{name}.") for module in self.stand_ins):
            return self._spec(name)
        if name not in _MODULES:
            # (Otherwise modules of bushel would be found, and loaded a second time.)
            raise ModuleNotFoundError(
                f"No module named {name!r}: bushel is in Grain's place (`bushel.replace_grain()`), "
                "and has its public modules. If nothing of it is used, name it in `stand_ins`.",
                name=name,
            )
        return self._spec(name)

    def _spec(self, name: str) -> ModuleSpec:
        loader: Any = self
        return ModuleSpec(name, loader, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name not in _MODULES:
            return _StandIns(spec.name)
        module = importlib.import_module(_MODULES[spec.name])
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own spec; the import has set the spec of the other name.
        assert module.__spec__ is not None
        if not isinstance(module, _StandIns):
            module.__spec__ = self._specs.pop(module.__spec__.name)


class _StandIns(ModuleType):
    """A module that makes up any class it is asked for; no objects of these can be made."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)

        def refused(*args: Any, **kwargs: Any) -> Any:
            raise ImportError(
                f"{self.__name__}.{name} is private to Grain, which bushel replaces here "
                "(`bushel.replace_grain`): the stand-in can be imported, but not used."
            )

        made = type(name, (), {"__init__": refused, "__module__": self.__name__})
        setattr(self, name, made)
        return made
