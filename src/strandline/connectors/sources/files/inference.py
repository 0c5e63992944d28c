"""The schema of files, for a declaration without columns: that of Parquet, or what a sample of text denotes.

Of many files some are looked at, the first and the last among them. A column is one that all of these have.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import polars as pl
import pyarrow.parquet as pq

from strandline.connectors.sources.files.content import DamagedContent
from strandline.connectors.sources.files.planning import PLAN_ERRORS, FileOptions
from strandline.connectors.sources.files.sampling import Sample, sample_file
from strandline.connectors.sources.files.tracking import FollowedDirectory
from strandline.connectors.sources.files.units import ListedFile
from strandline.connectors.sources.inferred_types import (
    choose_time,
    flatten_fields,
    null_mark,
    other_times,
    type_of_arrow,
    type_of_texts,
    type_of_times,
    unit_of_numbers,
)
from strandline.core import types
from strandline.core.errors import SourceError
from strandline.core.types import Type, common_type
from strandline.logical.catalog import Argument, SourceSchema

MOST_FILES: Final = 5  # that are looked at
Item = TypeVar("Item")
_READ_ERRORS: Final = (*PLAN_ERRORS, DamagedContent)
_DECLARE: Final = "Declare the columns: CREATE STREAM name (column TYPE, …) SOURCE …."


@dataclass
class _Guess:
    """What some files have in common."""

    columns: dict[str, Type]
    rows: int = 0
    total: int = 0
    is_counted: bool = True
    options: dict[str, Argument] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)


def infer_schema(folder: FollowedDirectory, options: FileOptions, files: Sequence[ListedFile]) -> SourceSchema:
    """The schema of some files; at least one of them must have rows."""
    chosen = spread(regular_files(folder, files), MOST_FILES)
    chosen = [file for file in chosen if file.size > 0] or chosen
    place = os.path.basename(files[0].path) if len(files) == 1 else folder.pattern
    if not chosen:
        raise _unknown(place, "it is no regular file")
    kinds = {options.kind_of(file.path) for file in chosen}
    if None in kinds:
        raise _unknown(place, "its format is unknown")
    if len(kinds) > 1:
        hint = "Name the files of one format by a pattern, as in file('directory/*.csv')."
        raise _unknown(place, "the files have several formats", hint)
    try:
        if kinds == {"parquet"}:
            guess = _of_parquet([folder.full(file.path) for file in chosen])
            basis = f"from the schema of {len(chosen)} of {len(files)} files" if len(files) > 1 else "from its schema"
        else:
            (kind,) = kinds
            assert kind is not None, "it was checked above"
            guess = _of_text([sample_file(folder.full(file.path), kind, options) for file in chosen], kind, options)
            basis = _show_basis(guess, chosen, files)
    except _READ_ERRORS as error:
        raise _unknown(place, str(error)) from None
    columns = _distinct_names(guess)
    if not columns:
        raise _unknown(place, "the files have no column in common")
    time_column, times = choose_time(columns)
    if options.stream.source.options.get("epoch") is not None:
        guess.options.pop("epoch", None)
    return SourceSchema(
        tuple(columns.items()),
        time_column,
        place=place,
        basis=basis,
        times=times,
        options=guess.options,
        remarks=tuple(guess.remarks),
    )


def regular_files(folder: FollowedDirectory, files: Sequence[ListedFile]) -> list[ListedFile]:
    """Those of some names that are files: opening a pipe would wait for its writer."""
    return [file for file in files if os.path.isfile(folder.full(file.path))]


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """At most so many of some items, evenly spread, with the first and the last."""
    return (
        [items[number] for number in sorted({*np.linspace(0, len(items) - 1, most, dtype=int).tolist()})]
        if items
        else []
    )


def _unknown(place: str, why: str, hint: str = _DECLARE) -> SourceError:
    return SourceError(f"cannot read the columns of {place}: {why}", code="columns-missing", hint=hint)


def _show_basis(guess: _Guess, chosen: Sequence[ListedFile], files: Sequence[ListedFile]) -> str:
    sizes = [max(file.size, 0) for file in files]
    total, is_counted = guess.total, guess.is_counted and len(chosen) == len(files)
    if len(chosen) < len(files):
        total = total * sum(sizes) // max(sum(max(file.size, 0) for file in chosen), 1)
    return f"from {guess.rows:,} of {'' if is_counted else 'about '}{max(total, guess.rows):,} rows"


def _distinct_names(guess: _Guess) -> dict[str, Type]:
    """The columns whose names differ, as SQL compares names; those of the system are left out."""
    seen: set[str] = set()
    columns: dict[str, Type] = {}
    for name, kind in guess.columns.items():
        if name.lower() in seen or name.startswith("@") or not name:
            guess.remarks.append(f'column "{name}" is left out: another has this name, or it is reserved')
            continue
        seen.add(name.lower())
        columns[name] = kind
    return columns


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def _of_parquet(paths: Sequence[str]) -> _Guess:
    schemas: list[Mapping[str, Type | None]] = []
    for path in paths:
        with pq.ParquetFile(path, memory_map=True) as file:
            schemas.append({name: type_of_arrow(kind) for name, kind in flatten_fields(file.schema_arrow)})
    guess = _Guess({})
    for name in schemas[0]:
        found = [schema.get(name) for schema in schemas]
        kind = found[0]
        for other in found[1:]:
            kind = None if kind is None or other is None else common_type(kind, other)
        if kind is not None:
            guess.columns[name] = kind
        elif all(name in schema for schema in schemas):
            guess.remarks.append(f'column "{name}" is left out: values of its type cannot be read')
        else:
            guess.remarks.append(f'column "{name}" is left out: not all files have it')
    return guess


# ---- text ------------------------------------------------------------------------------------------------------------


def _of_text(samples: Sequence[Sample], kind: str, options: FileOptions) -> _Guess:
    with_rows = [sample for sample in samples if sample.rows] or list(samples)
    if not with_rows[0].rows:
        raise ValueError("there is no row yet")
    guess = _Guess(
        {},
        sum(sample.rows for sample in samples),
        sum(sample.total for sample in samples),
        all(sample.is_counted for sample in samples),
    )
    columns: dict[str, pl.Series] = {}
    names = dict.fromkeys(name for sample in with_rows for name in sample.columns)
    for name in names:
        parts = [sample.columns[name] for sample in with_rows if name in sample.columns]
        if kind == "csv" and len(parts) < len(with_rows):
            guess.remarks.append(f'column "{name}" is left out: not all files have it')
            continue
        columns[name] = pl.concat(parts)
    if kind == "csv":
        _guess_format(guess, columns, with_rows, options)
    else:
        for name, texts in columns.items():
            found = set().union(*(sample.kinds.get(name, set()) for sample in with_rows))
            guess.columns[name] = _type_of_json(found - {"null"}, texts)
    if options.header and kind == "csv":
        _refuse_data_as_header(guess, with_rows[0])
    _guess_epoch(guess, columns, options)
    if types.TIMESTAMP not in guess.columns.values():
        texts_of = {name: columns[name] for name, own in guess.columns.items() if own == types.VARCHAR}
        if (other := other_times(texts_of)) is not None:
            guess.remarks.append(f"column \"{other[0]}\" has times such as '{other[1]}', which are not ISO 8601")
    return guess


def _guess_format(
    guess: _Guess, columns: dict[str, pl.Series], samples: Sequence[Sample], options: FileOptions
) -> None:
    """Types of CSV, its delimiter, and the text that stands for NULL."""
    if samples[0].delimiter != options.delimiter:
        guess.options["delimiter"] = samples[0].delimiter
    kinds = {name: type_of_texts(texts) for name, texts in columns.items()}
    if options.nulls is None:
        unclear = [texts for name, texts in columns.items() if kinds[name] in (types.VARCHAR, types.DOUBLE)]
        marks = [mark for texts in unclear if (mark := null_mark(texts)) is not None]
        if marks:
            mark = max(marks, key=marks.count)
            guess.options["nulls"] = mark
            for name, texts in columns.items():
                columns[name] = texts.set(texts == mark, None)
                kinds[name] = type_of_texts(columns[name])
    guess.columns.update(kinds)


def _type_of_json(kinds: set[str], texts: pl.Series) -> Type:
    match sorted(kinds):
        case ["boolean"]:
            return types.BOOLEAN
        case ["integer"] | ["number"] | ["integer", "number"]:
            kind = type_of_texts(texts)
            return types.DOUBLE if "number" in kinds and kind == types.BIGINT else kind
        case ["text"]:
            return type_of_times(texts)
    return types.VARCHAR


def _refuse_data_as_header(guess: _Guess, sample: Sample) -> None:
    """Refuse a file whose first line has values of the same types as the other lines, and so is no header."""
    typed = [name for name, kind in guess.columns.items() if kind != types.VARCHAR]
    if typed and all(type_of_texts(pl.Series([name])) == guess.columns[name] for name in typed):
        line = sample.first_line[:3]
        raise SourceError(
            f"the first line is no header: it has {', '.join(line)}{' …' if len(sample.first_line) > 3 else ''}",
            code="csv-header",
            hint="Add header => false; the columns are then column1, column2, …, or those that are declared.",
        )


def _guess_epoch(guess: _Guess, columns: Mapping[str, pl.Series], options: FileOptions) -> None:
    """Numbers that count the time since 1970, where no column has times."""
    declared = options.stream.source.options.get("epoch")
    if types.TIMESTAMP in guess.columns.values() and declared is None:
        return
    for name, kind in guess.columns.items():
        if kind not in (types.BIGINT, types.DOUBLE) or name not in columns:
            continue
        unit = unit_of_numbers(name, columns[name].cast(pl.Float64, strict=False))
        if unit is not None and unit == (declared or guess.options.get("epoch", unit)):
            guess.options["epoch"] = unit
            guess.columns[name] = types.TIMESTAMP
