"""Bytecode for what is measured, as an installation would have it.

Whoever installs a package has its bytecode; a checkout has it after the first run, or never
where PYTHONDONTWRITEBYTECODE is set. Without it bushel would be compiled in each new process,
its workers' too, which takes as long as all the rest of a start, and others would not.
"""

import compileall
from importlib.util import cache_from_source, find_spec
from pathlib import Path


def packages() -> list[Path]:
    """The folders of bushel, and of what contenders run."""
    found = find_spec("bushel")
    assert found is not None and found.origin is not None
    return [Path(found.origin).parent, Path(__file__).parent]


def compile_as_installed(folders: list[Path]) -> list[Path]:
    """Compiles what is not compiled yet; returns the files of which there is no bytecode still.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "module.py").write_text("x = 1")
    ...     missing = compile_as_installed([Path(folder)])
    ...     missing, [path.suffix for path in Path(folder).glob("__pycache__/*")]
    ([], ['.pyc'])
    """
    missing = []
    for folder in folders:
        compileall.compile_dir(folder, quiet=2)
        sources = sorted(folder.rglob("*.py"))
        missing += [path for path in sources if not Path(cache_from_source(str(path))).exists()]
    return missing
