"""Mistakes that people make, and what they are told: what is wrong, and what to write."""

from collections.abc import Callable
from typing import Any

import pytest

# What somebody writes; the type of the error; and a part of its text, or of its notes.
Mistake = tuple[Callable[[], Any], type[Exception], str]


def assert_told(mistake: Mistake) -> None:
    """Fails unless what somebody writes raises such an error, which says so."""
    write, kind, text = mistake
    with pytest.raises(kind) as caught:
        write()
    said = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
    assert text in said
    # Nothing of the inside.
    assert "NodeDataset" not in said
