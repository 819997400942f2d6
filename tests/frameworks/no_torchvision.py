"""Hides a torchvision that is there and cannot be imported, as one of another build than torch.

transformers and Lightning look for it, and fail with it. (The one that PyPI has does not fit a
torch without CUDA.) A program imports this first; `python -m tests.frameworks.no_torchvision FILE`
runs another one.
"""

import importlib.metadata
import runpy
import sys
from typing import Any


def hide() -> None:
    try:
        import torchvision  # noqa: F401
    except ModuleNotFoundError:
        return
    except Exception:
        pass
    else:
        return
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.modules["torchvision"] = None  # type: ignore[assignment]
    distribution = importlib.metadata.distribution

    def others(name: str) -> Any:
        if name == "torchvision":
            raise importlib.metadata.PackageNotFoundError(name)
        return distribution(name)

    importlib.metadata.distribution = others


hide()

if __name__ == "__main__":
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
