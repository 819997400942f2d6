"""Runs the tutorials, and keeps in them what they print.

python -m tools.notebooks             runs docs/tutorials/*.ipynb, and writes their outputs
python -m tools.notebooks audio       one of them

A notebook is run as Jupyter does: its cells one after the other, in one namespace. Jupyter
itself is not needed. The site shows each of them as a page (`tools/site_pages.py`).
"""

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"


def read(path: Path) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(path.read_text())
    return notebook


def run(notebook: dict[str, Any], name: str) -> dict[str, Any]:
    """The notebook with the outputs of a run, which ends at the first exception."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            outputs = _outputs("".join(cell["source"]), f"<{name}, cell {number}>", namespace)
            cell = cell | {"execution_count": number, "outputs": [*outputs]}
            for output in cell["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = number
        cells.append(cell)
    return notebook | {"cells": cells}


def _outputs(source: str, file: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints, and the value of its last line."""
    tree = ast.parse(source, file)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, file, "exec"), namespace)
        if last is not None:
            assert isinstance(last, ast.Expr)
            value = eval(compile(ast.Expression(last.value), file, "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(text)})
    if value is not None:
        data = {"text/plain": _lines(repr(value))}
        outputs.append({"output_type": "execute_result", "metadata": {}, "data": data})
    return outputs


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def markdown(notebook: dict[str, Any], name: str) -> str:
    """A notebook as a page.

    >>> code = {"cell_type": "code", "source": ["1 + 1"], "outputs": []}
    >>> print(markdown({"cells": [{"cell_type": "markdown", "source": ["# Sums"]}, code]}, "sums"))
    # Sums
    <BLANKLINE>
    [Download this page as a notebook](sums.ipynb){ .notebook download }
    <BLANKLINE>
    ```python
    1 + 1
    ```
    <BLANKLINE>
    """
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            shown = output["text"] if "text" in output else output["data"]["text/plain"]
            text = "".join(shown).rstrip("\n")
            parts.append(f"``` {{ .text .output .no-copy }}\n{text}\n```")
    title, _, rest = "\n\n".join(parts).partition("\n")
    link = f"[Download this page as a notebook]({name}.ipynb){{ .notebook download }}"
    return f"{title}\n\n{link}\n\n{rest.lstrip()}\n"


def main(names: list[str]) -> None:
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            done = run(read(path), path.stem)
            path.write_text(json.dumps(done, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
            print(f"notebooks: {path.stem} ran to its end")


if __name__ == "__main__":
    main(sys.argv[1:])
