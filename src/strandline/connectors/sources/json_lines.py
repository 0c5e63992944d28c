"""JSON lines to rows, for files, sockets, HTTP and Kafka.

Whether a line is accepted depends on that line alone. Polars reads whole blocks; what it reads alone it reads in a
block, and the other way round, with one exception: it makes something else of half a surrogate pair (`\\ud800`), which
stands for no character. Such lines are always rejected.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from strandline.connectors.sources.base import Chunk
from strandline.connectors.sources.conversion import conform, reject, show_bytes
from strandline.logical.catalog import BaseStream
from strandline.runtime.kernels.batch import Mask

_GROUP = 1_000  # lines parsed together where some are rejected
_OBJECT = re.compile(rb"\s*\{")
_NOT_READ = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
_NO_OBJECT = "not a JSON object"
_NO_TEXT = "not UTF-8"
_HALF_PAIR = "half of a surrogate pair, which stands for no character"


def conform_lines(
    data: bytes,
    stream: BaseStream,
    location: str,
    numbers: pl.Series,
    beside: pl.DataFrame | None = None,
    skip_empty: bool = False,
) -> Iterator[Chunk]:
    """Rows of lines without a line break at the end; `numbers` are their row numbers in the input.

    Lines that are no JSON object are rejected, but for empty ones if these mean nothing. `beside` has declared columns
    that do not come from the objects, a row per line. A column `"user.name"` has the value of that path.
    """
    names = [name for name, _ in stream.columns if beside is None or name not in beside.columns]
    declared = {key: pl.String() for name in names for key in dict.fromkeys((name, name.partition(".")[0]))}
    frame = None if _may_have_half_pair(data) else _parse(data, declared, len(numbers))
    if frame is not None:
        yield conform(_side_by_side(_follow_paths(frame, names), beside), stream, location, numbers)
        return
    lines = data.split(b"\n")
    reasons = _reasons(lines, declared)
    sound = pl.Series([reason is None for reason in reasons], dtype=pl.Boolean)
    if sound.any():
        chosen = [line for line, reason in zip(lines, reasons, strict=True) if reason is None]
        frame = pl.read_ndjson(io.BytesIO(b"\n".join(chosen)), schema=declared)
        others = None if beside is None else beside.filter(sound)
        rows = _side_by_side(_follow_paths(frame, names), others)
        yield conform(rows, stream, location, numbers.filter(sound))
    broken = [n for n, reason in enumerate(reasons) if reason is not None and not (skip_empty and not lines[n].strip())]
    if broken:
        yield reject(stream, location, [(numbers[n], reasons[n] or "", show_bytes(lines[n])) for n in broken])


def _may_have_half_pair(data: bytes) -> bool:
    return b"\\" in data and (b"\\ud" in data or b"\\uD" in data)


def _parse(data: bytes, schema: dict[str, pl.String], count: int) -> pl.DataFrame | None:
    """Objects of lines, of which none has half a surrogate pair; None if some line is no object."""
    if not _OBJECT.match(data):  # Polars decompresses input that begins like a compressed file, whatever it is
        return None
    try:
        frame = pl.read_ndjson(io.BytesIO(data), schema=schema)
    except _NOT_READ:
        return None
    return frame if frame.height == count else None


def _reasons(lines: list[bytes], schema: dict[str, pl.String]) -> list[str | None]:
    """Reason why each line is rejected; None for those that are not."""
    reasons: list[str | None] = []
    for first in range(0, len(lines), _GROUP):
        group = lines[first : first + _GROUP]
        data = b"\n".join(group)
        if not _may_have_half_pair(data) and _parse(data, schema, len(group)) is not None:
            reasons += [None] * len(group)
            continue
        texts = pl.Series([_decoded(line) for line in group], dtype=pl.String)
        halves = _half_pairs(texts)
        likely = _are_objects(texts) & ~halves
        # Two parsers do not agree on every odd line; the one that reads decides.
        together = [line for line, is_likely in zip(group, likely, strict=True) if is_likely]
        agreed = _parse(b"\n".join(together), schema, len(together)) is not None
        for line, text, half, is_likely in zip(group, texts, halves, likely, strict=True):
            if text is None:
                reasons.append(_NO_TEXT)
            elif half:
                reasons.append(_HALF_PAIR)
            elif is_likely and agreed:
                reasons.append(None)
            else:
                is_object = _may_be_json(text) and _parse(line, schema, 1) is not None
                reasons.append(None if is_object else _NO_OBJECT)
    return reasons


def _decoded(line: bytes) -> str | None:
    try:
        return line.decode()
    except UnicodeDecodeError:
        return None


def _half_pairs(texts: pl.Series) -> Mask:
    """Mask of texts with the escape of one half of a surrogate pair without the other."""
    escape = r"(?i)\\ud[89a-f]"
    candidates = texts.str.contains(escape).fill_null(False)
    if not candidates.any():
        return np.zeros(len(texts), np.bool_)
    remaining = texts.str.replace_all(r"\\\\", "  ", literal=False)
    remaining = remaining.str.replace_all(r"(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}", "")
    halves: Mask = remaining.str.contains(escape).fill_null(False).to_numpy()
    return halves


def _may_be_json(text: str) -> bool:
    """False only for lines that no parser accepts: a cheap check before the expensive one."""
    try:
        json.loads(text, parse_int=str, parse_float=str)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _are_objects(texts: pl.Series) -> Mask:
    """Mask of texts that are JSON objects. A quoted text may contain one, too; the first character decides."""
    parsed = texts.str.json_path_match("$").is_not_null()
    objects: Mask = (parsed & texts.str.strip_chars().str.starts_with("{")).fill_null(False).to_numpy()
    return objects


def _follow_paths(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    """Declared columns of objects: one with dots in its name is a key of the object, or a path to a value within it."""
    if not any("." in name for name in names):
        return frame
    return frame.select(_value_at(name) for name in names)


def _value_at(name: str) -> pl.Expr:
    root, *path = name.split(".")
    if not path:
        return pl.col(name)
    keys = "".join(f"[{json.dumps(key)}]" for key in path)
    return pl.coalesce(pl.col(name), pl.col(root).str.json_path_match(f"${keys}")).alias(name)


def _side_by_side(frame: pl.DataFrame, beside: pl.DataFrame | None) -> pl.DataFrame:
    return frame if beside is None else frame.hstack(beside)
