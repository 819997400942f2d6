"""Lets examples in docstrings appear as code on the reference pages.

Markdown takes a line that begins with `>>>` for a quotation. This extension of griffe, which
reads the docstrings for mkdocs, puts a fence around each such example.
"""

import textwrap
from typing import Any

import griffe


class FenceDoctests(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None and not obj.is_alias:
            paragraphs = obj.docstring.value.split("\n\n")
            obj.docstring.value = "\n\n".join(map(_fence, paragraphs))


def _fence(paragraph: str) -> str:
    if not paragraph.lstrip().startswith(">>>"):
        return paragraph
    return f"```pycon\n{textwrap.dedent(paragraph)}\n```"
