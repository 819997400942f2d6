"""Shows notebooks as pages of the site: mkdocs calls this while it builds."""

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))

import notebooks


def on_files(files: Any, *, config: Any) -> Any:
    """Adds a page for each notebook; the notebook itself is copied, too, as any file is."""
    for path in sorted(notebooks.FOLDER.glob("*.ipynb")):
        text = notebooks.markdown(notebooks.read(path), path.stem)
        files.append(File.generated(config, f"tutorials/{path.stem}.md", content=text))
    return files
