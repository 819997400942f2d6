"""Adds the version and the pipeline to states; refuses a state of another version or pipeline."""

import re
from typing import Any, TypeGuard

from bushel.checkpoint.code_and_files import MadeWith
from bushel.checkpoint.differences import differing_steps
from bushel.checkpoint.grown import goes_on_in_order, growth, how_to_go_on
from bushel.core.node import Node
from bushel.core.state import copy_state
from bushel.errors import StateError
from bushel.order.skip_steps import SkipStepsNode

VERSION = 1
_SIGNATURE = "bushel"
# Far more than any pipeline needs. A state that is nested deeper cannot even be copied.
MAX_DEPTH = 400
# Longer descriptions are compressed: that of a thousand parts repeats itself a thousand times. It
# would be most of a state, and takes a tenth of the space compressed.
_LONG = 4096

Pipeline = list[str]


def describe_pipeline(node: Node, in_full: bool = False) -> Pipeline:
    """Lists the steps of a pipeline from the source on, parts of a mixture indented.

    With `in_full`, it includes steps that influence the elements but are no part of the signature
    of a state.
    """
    lines: Pipeline = []
    _describe(node, "", lines, in_full)
    return lines


def _describe(node: Node, indent: str, lines: Pipeline, in_full: bool) -> None:
    # A loop over the steps of a chain, as there may be more of them than calls may be nested.
    steps = [node]
    while len(node.inputs) == 1 and not _has_names(node):
        (node,) = node.inputs
        steps.append(node)
    # Named parts of a mixture may come and go, so they are not compared.
    if not _has_names(node):
        for parent in node.inputs:
            _describe(parent, indent + "  ", lines, in_full)
    texts = (
        step.in_full if in_full and isinstance(step, SkipStepsNode) else step.describe()
        for step in reversed(steps)
    )
    lines.extend(indent + text for text in texts if text)


def _has_names(node: Node) -> bool:
    return getattr(node, "names", None) is not None


def sign(state: dict[str, Any], pipeline: Pipeline, made: MadeWith | None = None) -> dict[str, Any]:
    """Adds the version, the pipeline, and digests of code and files to a state."""
    signature: dict[str, Any] = {"version": VERSION, "pipeline": pipeline}
    if sum(map(len, pipeline)) > _LONG:
        from bushel.checkpoint.packed_lines import packed

        signature["pipeline"] = packed(tuple(pipeline))
    if made:
        signature["made_with"] = copy_state(made)
    return {**state, _SIGNATURE: signature}


def _pipeline_in(signature: Any) -> Pipeline | None:
    """The description in the signature of a state; None if it is damaged."""
    told = signature.get("pipeline") if isinstance(signature, dict) else None
    if isinstance(told, str):
        from bushel.checkpoint.packed_lines import unpacked

        told = unpacked(told)
    return told if is_pipeline(told) else None


def verify(state: Any, pipeline: Pipeline) -> dict[str, Any]:
    """Returns the state without its signature, or says how the pipeline differs.

    A state without a signature (from Grain, or written by hand) is accepted.
    """
    if isinstance(state, (bytes, bytearray)):
        raise StateError(
            "a state of a dataset's iterator is a dict, as `get_state()` returned it, and this is "
            f"{type(state).__name__}: if it was saved by a DataLoader, restore it into "
            "`iter(loader)`; if it is JSON, decode it with `json.loads` first."
        )
    check_depth(state)  # First: the text of what is nested too deeply cannot be made either.
    if not isinstance(state, dict):
        raise StateError(
            f"a state is a dict, as `get_state()` returned it, and this is a "
            f"{type(state).__name__}: {state!r:.200}."
        )
    if is_loaders(state):
        raise StateError(
            "this state was saved by a DataLoader, and this is a dataset's iterator. Restore it "
            "into `iter(loader)` of a DataLoader with the same source, sampler and operations."
        )
    bare = {name: value for name, value in state.items() if name != _SIGNATURE}
    signature = state.get(_SIGNATURE)
    if signature is None:
        return bare
    saved = _pipeline_in(signature)
    if saved is None:
        raise StateError(f"the {_SIGNATURE!r} entry of this state is damaged: {signature!r:.200}.")
    if signature.get("version") != VERSION:
        raise StateError(
            f"this state has version {signature.get('version')!r}; this release of bushel reads "
            f"version {VERSION}."
        )
    if not _is_same(saved, pipeline):
        grown = growth(saved, pipeline)
        if grown and saved[1:] == pipeline[1:] and goes_on_in_order(pipeline[1:]):
            return bare
        different = differing_steps(saved, pipeline)
        raise StateError(
            f"this state belongs to another pipeline: {different}."
            f"{how_to_go_on(*grown) if grown else ''} "
            f"(To restore it all the same, remove its {_SIGNATURE!r} entry.)"
        )
    return bare


def growth_since(state: dict[str, Any], pipeline: Pipeline) -> str | None:
    """The old and new length of the source of a verified state, if the source has grown."""
    saved = _pipeline_in(state.get(_SIGNATURE))
    grown = growth(saved, pipeline) if saved is not None else None
    return None if grown is None else f"the source had {grown[0]} records and has {grown[1]} now"


def is_loaders(state: dict[str, Any]) -> bool:
    """Whether a state is one of a DataLoader, bushel's or Grain's."""
    signature = state.get(_SIGNATURE)
    ours = isinstance(signature, dict) and "operations" in signature
    return ours or {"last_seen_indices", "sampler"} <= state.keys()


def made_of(state: dict[str, Any]) -> Any:
    """The digests of code and files in a verified state."""
    signature = state.get(_SIGNATURE)
    return signature.get("made_with") if isinstance(signature, dict) else None


def _is_same(saved: Pipeline, current: Pipeline) -> bool:
    """Whether the states of two pipelines are interchangeable."""
    if len(saved) != len(current):
        return False
    # Mixtures of streams were once saved with their weights, which may change.
    return all(
        old == new or re.sub(r", proportions=\[[^]]*\]\)$", ")", old) == new
        for old, new in zip(saved, current, strict=True)
    )


def is_pipeline(value: Any) -> TypeGuard[Pipeline]:
    """Whether this is a list of steps, as `describe_pipeline` gives it."""
    return isinstance(value, list) and all(isinstance(step, str) for step in value)


def check_depth(state: Any, what: str = "this state") -> None:
    """Refuses a state that is nested so deeply that reading it would exhaust the stack."""
    pending = [iter((state,))]
    while pending:
        if len(pending) > MAX_DEPTH:
            raise StateError(f"{what} is nested more than {MAX_DEPTH} levels deep.")
        for item in pending[-1]:
            if isinstance(item, dict):
                pending.append(iter(item.values()))
                break
            if isinstance(item, (list, tuple)):
                pending.append(iter(item))
                break
        else:
            pending.pop()
