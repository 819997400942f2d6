"""Opens pages in a real browser, Chromium without a window.

Where there is none, tests that need it are skipped; `make test` installs it where it can.
"""

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from tests.patience import PATIENCE_SECONDS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here: `make browser` installs it, as root"
)

# A page that has another one within it, and writes down what became of that.
_AROUND = """<!doctype html><meta charset="utf-8"><style>body {{margin: 0}}</style>
<iframe id="page" src="{page}" width="{width}" height="{height}" style="border: 0"></iframe>
<pre id="found"></pre>
<script>
addEventListener("load", () => {{
  const inner = document.getElementById("page").contentDocument
  const body = getComputedStyle(inner.body)
  document.getElementById("found").textContent = JSON.stringify({{
    html: inner.documentElement.outerHTML,
    text: inner.body.innerText,
    width: inner.documentElement.scrollWidth,
    background: body.backgroundColor,
    color: body.color,
    fetched: inner.defaultView.performance.getEntriesByType("resource").map(one => one.name),
  }})
}})
</script>
"""


@dataclass(frozen=True)
class Seen:
    """A page as a browser has it."""

    # The document, after all that is in it was run.
    html: str
    # What a reader sees, as text.
    text: str
    # How wide it is; more than the window means that it has to be scrolled.
    width: int
    background: str
    color: str
    # What was loaded beside it.
    fetched: list[str]

    def count(self, tag: str) -> int:
        """How many elements of a kind it has."""
        return len(re.findall(rf"<{tag}[\s>]", self.html))


def look_at(page: Path, width: int = 1000, dark: bool = False) -> Seen:
    """Opens a page of this machine, and tells what became of it."""
    around = page.with_name(f"around-{page.name}")
    around.write_text(_AROUND.format(page=page.as_uri(), width=width, height=800))
    profile = page.with_name("profile")
    dumped = _run(
        around.as_uri(), profile, ["--dump-dom", "--allow-file-access-from-files"], width, dark
    )
    found = re.search(r'<pre id="found">(.+?)</pre>', dumped, re.DOTALL)
    assert found is not None, f"the page did not load: {dumped[:2000]}"
    values: dict[str, Any] = json.loads(html.unescape(found[1]))
    return Seen(**values)


def document_of(address: str, folder: Path) -> str:
    """The document that a server has at an address; `folder` is for the browser itself."""
    # Looked at before it loads itself again, if it does.
    what = ["--dump-dom", "--virtual-time-budget=500"]
    return _run(address, folder / "profile", what, 1000, False)


def picture_of(page: Path, width: int = 1000, dark: bool = False) -> npt.NDArray[np.uint8]:
    """A picture of a page: height × width × red, green, blue."""
    path = page.with_suffix(".png")
    _run(page.as_uri(), page.with_name("profile"), [f"--screenshot={path}"], width, dark)
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def _run(address: str, profile: Path, what: list[str], width: int, dark: bool) -> str:
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        f"--user-data-dir={profile}",
        f"--window-size={width},800",
        "--virtual-time-budget=2000",
        *(["--force-dark-mode"] if dark else []),
        *what,
        address,
    ]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()
