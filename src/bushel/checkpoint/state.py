"""States as users see them: plain JSON values, signed with the pipeline they belong to."""

from collections.abc import Sequence
from typing import Any

from bushel.errors import StateError
from bushel.node import Node

VERSION = 1
_SIGNATURE = "bushel"

Pipeline = list[str]


def describe_pipeline(node: Node) -> Pipeline:
    """Lists the steps of a pipeline from the source on, parts of a mixture indented."""
    lines: Pipeline = []
    _describe(node, "", lines)
    return lines


def _describe(node: Node, indent: str, lines: Pipeline) -> None:
    inner = indent if len(node.inputs) < 2 else indent + "  "
    # The parts of a mixture by name may come and go, and so they are not compared.
    if getattr(node, "names", None) is None:
        for parent in node.inputs:
            _describe(parent, inner, lines)
    text = node.describe()
    if text:
        lines.append(indent + text)


def sign(state: dict[str, Any], pipeline: Pipeline) -> dict[str, Any]:
    """Adds the version and the pipeline to a state."""
    return {**state, _SIGNATURE: {"version": VERSION, "pipeline": pipeline}}


def verify(state: Any, pipeline: Pipeline) -> dict[str, Any]:
    """Returns the state without its signature, or says how the pipeline differs.

    A state without a signature (from Grain, or written by hand) is taken as it is.
    """
    if not isinstance(state, dict):
        raise StateError(
            f"a state is a dict, as `get_state()` returned it, and this is a "
            f"{type(state).__name__}: {state!r:.200}."
        )
    bare = {name: value for name, value in state.items() if name != _SIGNATURE}
    signature = state.get(_SIGNATURE)
    if signature is None:
        return bare
    if not isinstance(signature, dict) or not isinstance(signature.get("pipeline"), list):
        raise StateError(f"the {_SIGNATURE!r} entry of this state is damaged: {signature!r:.200}.")
    if signature.get("version") != VERSION:
        raise StateError(
            f"this state has version {signature.get('version')!r}; this release of bushel reads "
            f"version {VERSION}."
        )
    if signature["pipeline"] != pipeline:
        raise StateError(
            "this state belongs to another pipeline: "
            + _difference(signature["pipeline"], pipeline)
            + f" (To restore it all the same, remove its {_SIGNATURE!r} entry.)"
        )
    return bare


def _difference(saved: Sequence[Any], current: Sequence[str]) -> str:
    for number, (old, new) in enumerate(zip(saved, current, strict=False), start=1):
        if old != new:
            return f"step {number} was `{str(old).strip()}` and is `{new.strip()}` now."
    if len(saved) > len(current):
        rest = ", ".join(f"`{str(step).strip()}`" for step in saved[len(current) :])
        return f"it also had {rest} at the end."
    rest = ", ".join(f"`{step.strip()}`" for step in current[len(saved) :])
    return f"it did not have {rest} at the end."
