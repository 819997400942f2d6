"""`bushel inspect`: format, records, sizes and schema of files."""

import os
from typing import Any

from bushel.cli.show import as_json, brief, bytes_in, kind_of, leaves_of, size
from bushel.files.local import open_file

# How many records are looked at, for their sizes and their kinds.
_LOOKED_AT = 100


def describe(format: str, source: Any) -> dict[str, Any]:
    """What there is to tell of a source, as plain values."""
    count = len(source)
    files = [str(path) for path in dict.fromkeys(getattr(source, "paths", None) or [])]
    sizes = [_size_of(path) for path in files]
    step = max(1, count // _LOOKED_AT)
    keys = list(range(0, count, step))[:_LOOKED_AT]
    read_many = getattr(source, "__getitems__", None)
    records = list(read_many(keys)) if read_many and keys else [source[key] for key in keys]
    each = [bytes_in(record) for record in records]
    return {
        "format": format,
        "records": count,
        "files": len(files),
        "bytes": sum(sizes),
        "first_file": files[0] if files else None,
        "record_bytes": {
            "least": min(each, default=0),
            "mean": sum(each) / len(each) if each else 0,
            "most": max(each, default=0),
            "looked_at": len(each),
        },
        "schema": _schema(records),
        "first_record": as_json(records[0]) if records else None,
        "first_record_brief": {name: brief(leaf) for name, leaf in leaves_of(records[0])}
        if records
        else {},
    }


def _size_of(path: str) -> int:
    if os.path.isdir(path):
        return sum(
            os.path.getsize(os.path.join(folder, name))
            for folder, _, names in os.walk(path)
            for name in names
        )
    return open_file(path).size


def _schema(records: list[Any]) -> dict[str, str]:
    """The kinds of the parts of records, all that were met."""
    kinds: dict[str, dict[str, None]] = {}
    present: dict[str, int] = {}
    for record in records:
        for name, leaf in leaves_of(record):
            kinds.setdefault(name, {})[kind_of(leaf)] = None
            present[name] = present.get(name, 0) + 1
    return {name: _kinds(met, present[name], len(records)) for name, met in kinds.items()}


def _kinds(met: dict[str, None], present: int, records: int) -> str:
    shown = list(met)
    # Arrays of many shapes are told once: float32[...].
    families = list(dict.fromkeys(kind.split("[")[0] for kind in shown))
    if len(shown) > 3 and len(families) < len(shown):
        shown = [f"{family}[...]" for family in families]
    text = " | ".join(shown[:5]) + (" | ..." if len(shown) > 5 else "")
    return text if present == records else f"{text} (not in every record)"


def table(found: dict[str, Any]) -> str:
    """The same, for people."""
    sizes = found["record_bytes"]
    files = f"{found['files']:,} file{'s' * (found['files'] != 1)}"
    lines = [
        f"format   {found['format']}",
        f"records  {found['records']:,}",
    ]
    if found["files"]:
        first = f", the first is {found['first_file']}" if found["files"] > 1 else ""
        lines.append(f"files    {files}, {size(found['bytes'])}{first}")
    if found["records"]:
        lines.append(
            f"a record has {size(sizes['mean'])} on average ({size(sizes['least'])} to "
            f"{size(sizes['most'])}, of {sizes['looked_at']} looked at)"
        )
        width = max(len(name or "record") for name in ("part", *found["schema"]))
        kinds = max(len(kind) for kind in ("kind", *found["schema"].values()))
        lines += ["", f"{'part':{width}}  {'kind':{kinds}}  in the first record"]
        for name, kind in found["schema"].items():
            value = found["first_record_brief"].get(name, "-")
            lines.append(f"{name or 'record':{width}}  {kind:{kinds}}  {value}")
    return "\n".join(line.rstrip() for line in lines)
