"""Declared columns that files lack: found at the declaration, with the names that the files have."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from strandline.connectors.sources.files.content import DamagedContent
from strandline.connectors.sources.files.inference import spread
from strandline.connectors.sources.files.planning import PLAN_ERRORS, FileOptions, InputFile, plan_file
from strandline.connectors.sources.files.sampling import sample_file
from strandline.connectors.sources.files.tracking import FollowedDirectory
from strandline.connectors.sources.files.units import ListedFile
from strandline.core.errors import SourceError, Span
from strandline.core.notices import Notice

FILES_CHECKED: Final = 100
FILES_SAMPLED: Final = 3
_MOST_LISTED: Final = 12


def check_columns(folder: FollowedDirectory, options: FileOptions, files: Sequence[str], span: Span | None) -> None:
    """Refuse a column that all files lack: that is a mistake of the declaration, and not of the files."""
    files = spread(files, FILES_CHECKED)
    problems: list[str] = []
    for path in files:
        try:
            size = os.path.getsize(folder.full(path))
            unit = next(plan_file(InputFile(path, size=size), folder.full(path), options, True, True), None)
        except PLAN_ERRORS:
            return
        if unit is None or unit.problem is None or not unit.problem.startswith("column"):
            return
        problems.append(unit.problem)
    location = folder.full(files[0])
    name, is_missing, listed = problems[0].removeprefix("column ").partition(" is missing; the file has ")
    if not is_missing:
        name, _, times = name.partition(" occurs ")
        message, hint = f'column "{name}" occurs {times} in {location}', "Give the columns different names."
        raise SourceError(message, code="duplicate-column", hint=hint, span=span)
    near = _nearest(name, listed.split(", "))
    hint = f"The file has {listed}."
    raise SourceError(
        f'column "{name}" of stream "{options.stream.name}" is not in {location}',
        code="missing-column",
        hint=hint if near is None else f'Did you mean "{near}"? {hint}',
        span=span,
    )


def missing_keys(folder: FollowedDirectory, options: FileOptions, present: Sequence[ListedFile]) -> Sequence[Notice]:
    """Columns that no object of a sample of JSON lines has: they may come later, or be misspelled."""
    files = [file for file in present if options.kind_of(file.path) == "json"]
    listed: dict[str, None] = {}
    rows = 0
    for file in spread(files, FILES_SAMPLED):
        try:
            sample = sample_file(folder.full(file.path), "json", options)
        except (*PLAN_ERRORS, DamagedContent):
            return ()
        listed |= dict.fromkeys(key for name in sample.columns for key in _prefixes(name))
        rows += sample.rows
    notices: list[Notice] = []
    for name in [name for name, _ in options.stream.columns if name not in listed] if rows else ():
        near = _nearest(name, listed)
        remedy = f"they have {', '.join(list(listed)[:_MOST_LISTED])}" if near is None else f'write "{near}"'
        text = f'column "{name}" of "{options.stream.name}" is in none of {rows:,} rows of {folder.pattern}'
        notices.append(Notice("missing-key", text, remedy))
    return notices


def _nearest(name: str, names: Iterable[str]) -> str | None:
    by_lower = {other.lower(): other for other in names}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[near[0]] if near else None


def _prefixes(path: str) -> Iterator[str]:
    """A path and the objects on its way: a, a.b and a.b.c."""
    parts = path.split(".")
    return (".".join(parts[: count + 1]) for count in range(len(parts)))
