"""`strandline inspect`: files read once, and the statement that declares them, with the WITHIN that their rows need."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from strandline.connectors.sources.base import open_source, source_schema
from strandline.connectors.sources.profile import SourceProfile, read_profile
from strandline.core.errors import SourceError
from strandline.core.temporal import DAY, HOUR, MINUTE, SECOND, round_up, show_duration, show_instant
from strandline.core.types import TIMESTAMP
from strandline.logical.catalog import Argument, BaseStream, ConnectorCall, SourceSchema
from strandline.sql.binder.create_stream import written

MOST_SHOWN: Final = 6  # values of a column that are listed
PERIOD: Final = ("valid_from", "valid_until")
FEW_VALUES: Final = 100  # of a column whose number of values is worth a statistic


def inspect_files(paths: Sequence[str], is_table: bool = False, name: str | None = None) -> str:
    """The statements for some files: one for those that a single pattern names, else one for each."""
    patterns = [pattern] if (pattern := _common_pattern(paths)) is not None else list(paths)
    return "\n\n".join(_inspect(pattern, is_table, name) for pattern in patterns)


def _common_pattern(paths: Sequence[str]) -> str | None:
    """The pattern that names these files and no others."""
    if len(paths) == 1:
        return paths[0]
    parts = {(os.path.dirname(path), os.path.splitext(path)[1]) for path in paths}
    if len(parts) > 1:
        return None
    directory, suffix = parts.pop()
    pattern = os.path.join(directory, f"*{suffix}")
    return pattern if sorted(glob.glob(pattern)) == sorted(paths) else None


def _inspect(path: str, is_table: bool, name: str | None) -> str:
    call = ConnectorCall("file", (path,))
    schema = _schema(call)
    if schema is None:
        raise SourceError(f"no file matches {path}", code="missing-file", hint="Name a file, a directory or a pattern.")
    call = replace(call, options=schema.options)
    if _has_periods(schema):
        schema = replace(schema, time_column=PERIOD[0], times=())
    elif schema.times and not is_table:
        schema = replace(schema, time_column=_most_ordered(path, call, schema))
    time_column = None if is_table else schema.time_column
    profile = read_profile(open_source(BaseStream(path, schema.columns, call, time_column)), count_values=True)
    return "\n".join([*_remarks(path, schema, profile, is_table), _statement(call, schema, profile, is_table, name)])


def _schema(call: ConnectorCall) -> SourceSchema | None:
    """The columns of files; column1, column2, … where the first line of CSV files has values like the others."""
    try:
        return source_schema(call)
    except SourceError as error:
        if error.code != "csv-header":
            raise
        options = {**call.options, "header": False}
        schema = source_schema(replace(call, options=options))
        remark = "the first line is no header: rename the columns as you like"
        return schema and replace(schema, options={**options, **schema.options}, remarks=(remark, *schema.remarks))


def _has_periods(schema: SourceSchema) -> bool:
    """Whether the columns are those of results, with the time in which each row is valid."""
    return all((name, TIMESTAMP) in schema.columns for name in PERIOD)


def _most_ordered(path: str, call: ConnectorCall, schema: SourceSchema) -> str:
    """Of the columns that may be the time, the one by which the rows are nearest to being in order."""
    profiles = {time: read_profile(open_source(BaseStream(path, schema.columns, call, time))) for time in schema.times}
    return min(profiles, key=lambda time: (profiles[time].rejected, profiles[time].disorder_us))


# ---- what was found --------------------------------------------------------------------------------------------------


def _remarks(path: str, schema: SourceSchema, profile: SourceProfile, is_table: bool) -> Iterator[str]:
    rows = f"-- {path}: {profile.rows:,} {'row' if profile.rows == 1 else 'rows'}"
    if profile.rows and schema.time_column is not None and not is_table:
        span = show_span(profile.high - profile.low)
        rows += f" from {show_instant(profile.low)} to {show_instant(profile.high)}, {span}"
    yield rows
    if profile.disorder_us:
        yield f"-- {profile.disordered:,} rows come after a later one, by up to {show_span(profile.disorder_us)}"
    if schema.times and not is_table:
        yield f"-- {' or '.join(schema.times)} may be the time: rows are nearest to the order of {schema.time_column}"
    elif _has_periods(schema):
        yield "-- valid_from and valid_until are the time in which a row is valid"
    elif schema.time_column is None and not is_table:
        yield "-- no column is a time: rows have the time at which they are read"
    if profile.rejected:
        yield f"-- {profile.rejected:,} rows do not fit, the first because of {profile.reason}"
    for column, values in profile.values.items():
        if values and len(values) <= FEW_VALUES and 2 * len(values) <= profile.rows:
            shown = sorted(map(str, values))
            listed = ", ".join(shown[:MOST_SHOWN]) + (", …" if len(shown) > MOST_SHOWN else "")
            yield f"-- {column}: {len(values)} {'value' if len(values) == 1 else 'values'} ({listed})"
    yield from (f"-- {remark}" for remark in schema.remarks)


def show_span(span: int) -> str:
    """A length of time in its two largest units, as in `11 min 11 s`."""
    if span < SECOND:
        return f"{span / 1000:g} ms"
    if span < MINUTE:
        return f"{span / SECOND:.3g} s"
    units = (("d", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND))
    first = next(number for number, (_, size) in enumerate(units) if span >= size)
    parts: list[str] = []
    for unit, size in units[first : first + 2]:
        count, span = divmod(span, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts)


# ---- the statement ---------------------------------------------------------------------------------------------------


def _statement(
    call: ConnectorCall, schema: SourceSchema, profile: SourceProfile, is_table: bool, name: str | None
) -> str:
    path = str(call.arguments[0])
    columns = ",\n".join(f"  {written(column)} {kind}" for column, kind in schema.columns)
    options = "".join(f", {option} => {_literal(value)}" for option, value in call.options.items())
    word = "TABLE" if is_table else "STREAM"
    lines = [f"CREATE {word} {written(name or name_of(path))} (", columns, f") SOURCE file({_literal(path)}{options})"]
    validity = f"VALID FROM {PERIOD[0]} UNTIL {PERIOD[1]}"
    if is_table:
        return "\n".join([*lines[:-1], f"{lines[-1]} {validity if _has_periods(schema) else 'CONSTANT'};"])
    if schema.time_column is not None:
        within = f" WITHIN {show_duration(round_up(profile.disorder_us))}" if profile.disorder_us else ""
        order = validity if _has_periods(schema) else f"ORDERED BY {written(schema.time_column)}"
        lines.append(f"  {order}{within}")
    hints = [] if profile.rate is None else [f"rate = {profile.rate:.3g}"]
    for column, values in profile.values.items():
        if values and len(values) <= FEW_VALUES and 2 * len(values) <= profile.rows:
            hints.append(f"distinct({written(column)}) = {len(values)}")
    if hints:
        lines.append(f"  WITH ({', '.join(hints)})")
    return "\n".join(lines) + ";"


def _literal(value: Argument) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "'" + str(value).replace("\t", "\\t").replace("'", "''") + "'"


def name_of(path: str) -> str:
    """A name for the stream of a file: `trades` for data/trades.csv and for trades/*.csv."""
    for part in reversed(path.split("/")):
        if stem := re.sub(r"[^A-Za-z0-9_]+", "_", part.split(".")[0]).strip("_"):
            return stem if not stem[0].isdigit() else f"file_{stem}"
    return "file"
