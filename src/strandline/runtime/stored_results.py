"""Results that a run has written to directories of Parquet files, for readers in any process.

    DIR/q/                    the results of a query; connectors/sinks/parquet_results.py has its files
    DIR/.strandline/          the checkpoint, if it is not elsewhere: up to when the results are complete

A result is read while it is written: first the record of the last batch, then the files, which have at least the rows
of that batch.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.connectors.sinks.parquet import OWNER, OWNER_FILE
from strandline.connectors.sinks.parquet_results import read_stored, result_files
from strandline.core.arguments import checked, parse_instant
from strandline.core.durable import PIPELINES, encode_name, read_document
from strandline.core.errors import CheckpointError, SinkError, StrandlineError
from strandline.core.temporal import BEFORE_ALL, FOREVER, OPEN, Instant, show_instant
from strandline.runtime.checkpoint.records import BatchRecords
from strandline.runtime.exchange import to_table
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.kernels.changes import CHANGE, TIME, coalesce, net_changes
from strandline.runtime.pipeline import FLOW
from strandline.runtime.result import INSTANT, VALID_FROM, VALID_UNTIL
from strandline.runtime.watermark import SourceStatus, watermark_of


@dataclass(frozen=True, slots=True)
class RecordedProgress:
    """Progress of a query by the checkpoint of its run: its watermark, and the time of its latest row."""

    watermark: Instant
    latest_row: Instant


@dataclass(frozen=True, slots=True)
class StoredResult:
    """The result of a query as it is in its directory: every element once, in the order of `valid_from`.

    Elements that never end, or have not ended yet, have NULL as `valid_until`. `complete_until` is the watermark; None
    where the directory does not say it.
    """

    query: str
    elements: pa.Table
    complete_until: Instant | None
    latest_row: Instant | None = None

    def snapshot(self, at: Instant) -> pa.Table:
        """The rows that are valid at an instant, which must be complete."""
        self._refuse_incomplete(at)
        starts, ends = _instants(self.elements, VALID_FROM), _instants(self.elements, VALID_UNTIL)
        names = self.elements.column_names[:-2]
        return self.elements.filter(pa.array((starts <= at) & (at < ends))).select(names)

    def last_instant(self) -> Instant:
        """The last complete instant, or that of the last row if no row will follow."""
        if self.complete_until is not None and BEFORE_ALL < self.complete_until < FOREVER:
            return self.complete_until - 1
        if self.complete_until == BEFORE_ALL:
            self._refuse_incomplete(BEFORE_ALL)
        if self.latest_row is not None:
            return self.latest_row
        starts = _instants(self.elements, VALID_FROM)
        return int(starts.max()) if len(starts) else 0

    def changes(self) -> pa.Table:
        """The changes before the watermark, in order: the payload, `time`, and `change` (+n inserted, -n deleted)."""
        frame, names = _to_frame(self.elements)
        net = net_changes(frame, names)
        if self.complete_until is not None and self.complete_until < FOREVER:
            net = net.filter(pl.col(TIME) < self.complete_until)
        payload = _from_frame(net.select(names), self.elements)
        time = to_table(net.select(pl.col(TIME).cast(pl.Datetime("us", "UTC"))))
        return payload.append_column("time", time.column(0)).append_column("change", pa.array(net.get_column(CHANGE)))

    def _refuse_incomplete(self, at: Instant) -> None:
        until = self.complete_until
        if until is None or at < until:
            return
        if until == BEFORE_ALL:
            raise SinkError(
                f"the result of {self.query} is not complete at any instant yet",
                code="not-complete",
                hint="Open elements are written within a minute of a change, or when the run ends: read it again then.",
            )
        raise SinkError(
            f"the result of {self.query} at {show_instant(at)} is not complete yet",
            code="not-complete",
            hint=f"It is complete for instants before {show_instant(until)}.",
        )


@checked()
def read(
    directory: str | os.PathLike[str],
    query: str | None = None,
    *,
    at: datetime | str | int | None = None,
    changes: bool = False,
) -> pa.Table:
    """Read the results that a query has written, or is writing, to a directory of Parquet files.

    `directory` is that of the query, or the `--out` of a run and `query` a name; a run of one query needs none.
    Every element comes once, in the order of `valid_from`, with `valid_from` and `valid_until`. The latter is NULL for
    an element that never ends or has not ended yet. With `at` these are the rows that are valid at that instant, with
    `changes` the changes of the result, as `Query.changes` has them.

    The metadata of the schema have `complete_until`, in microseconds since 1970, where it is known: up to then the
    results are complete.
    """
    if at is not None and changes:
        raise SinkError("read() takes either at or changes", code="usage", hint="Leave one of them out.")
    moment = None if at is None else parse_instant("read", "at", at)
    stored = read_result(find_result(Path(directory), query))
    table = stored.changes() if changes else stored.elements if moment is None else stored.snapshot(moment)
    known = stored.complete_until is not None
    return table.replace_schema_metadata({"complete_until": str(stored.complete_until)} if known else None)


def list_results(directory: Path) -> dict[str, Path]:
    """The queries whose results are in the directory of a run, with their directories."""
    listed = {}
    for path in sorted(directory.glob(f"*/{OWNER_FILE}")):
        with contextlib.suppress(CheckpointError):
            listed[str(_read_facts(path.parent).get("query", path.parent.name))] = path.parent
    return listed


def find_result(directory: Path, query: str | None = None) -> Path:
    """The directory with the results of a query: the given one, or one in it."""
    if not directory.is_dir():
        # DIR/q, where q was written as in SQL: its directory may be spelled otherwise.
        encoded = directory.parent / encode_name(directory.name)
        if query is None and encoded.is_dir():
            return encoded
        raise _no_results(directory, directory.parent if directory.parent.is_dir() else None)
    if query is None and ((directory / OWNER_FILE).exists() or result_files(directory)):
        return directory
    listed = list_results(directory)
    if query is None:
        if len(listed) == 1:
            return next(iter(listed.values()))
        if not listed:
            raise _no_results(directory, None)
        raise SinkError(
            f"{directory} has the results of {len(listed)} queries",
            code="no-results",
            hint=f"Name one: {', '.join(str(path) for path in listed.values())}.",
        )
    for name, path in listed.items():
        if name.lower() == query.lower():
            return path
    raise _no_results(directory / query, directory)


def _no_results(path: Path, run: Path | None) -> StrandlineError:
    names = list(list_results(run)) if run is not None else []
    return SinkError(
        f"{path} is not a directory of results",
        code="no-results",
        hint=f"{run} has the results of {', '.join(names)}."
        if names
        else "Name the directory of a Parquet sink: with `strandline run --out DIR`, DIR/<query>.",
    )


def read_result(directory: Path) -> StoredResult:
    """The result in the directory of a query."""
    facts = _read_facts(directory)
    query = str(facts.get("query", directory.name))
    progress = read_progress(directory.parent, query)
    stored = read_stored(directory)
    kept = stored.kept()
    if not kept.tables:
        return StoredResult(query, pa.table({}), progress.watermark if progress else None)
    complete_until = kept.complete_until
    if progress is not None and (progress.watermark == FOREVER or complete_until is None):
        # Without a file of open elements nothing is open, or what is open has not been written.
        hides_open = facts.get("has_open_elements", False) and progress.watermark < FOREVER
        complete_until = BEFORE_ALL if hides_open else progress.watermark
    whole = pa.concat_tables(kept.tables).replace_schema_metadata(None)
    frame, names = _to_frame(whole)
    if facts.get("in_fragments", False):
        frame = coalesce(frame, names)
    frame = frame.sort(FROM, maintain_order=True)
    elements = _from_frame(frame.select(names), whole)
    ends = pl.when(pl.col(UNTIL) < OPEN).then(pl.col(UNTIL))
    times = to_table(frame.select(pl.col(FROM), ends.alias(UNTIL)))
    for field, column in zip(list(whole.schema)[-2:], times.columns, strict=True):
        elements = elements.append_column(field, column.cast(INSTANT))
    return StoredResult(query, elements, complete_until, progress.latest_row if progress else None)


def read_progress(run: Path, query: str) -> RecordedProgress | None:
    """How far a run has come with a query, by the checkpoint in its directory; None if it is elsewhere."""
    places = (f".strandline/*/*/{FLOW}", f".strandline/*/{PIPELINES}/*/*/{FLOW}")
    for path in (path for place in places for path in sorted(run.glob(place))):
        with contextlib.suppress(OSError, ValueError, KeyError, CheckpointError):
            streams: Sequence[str] | None = json.loads(path.read_text())["streams"].get(query)
            records = BatchRecords(path.parent)
            listed = records.listed() if streams is not None else []
            newest = records.newest(listed[-1].batch) if listed else None
            if newest is None or streams is None:
                continue
            statuses = {name: SourceStatus.from_json(status) for name, status in newest[0].statuses.items()}
            own = [status.for_queries_over(streams) for name, status in statuses.items() if name in streams]
            rows = [status.high for status in own if status.rows]
            reach = newest[0].totals.get("reaches", {}).get(query, FOREVER)
            return RecordedProgress(
                min(watermark_of(statuses, streams).time, reach), min(max(rows, default=0), FOREVER - 1)
            )
    return None


def _read_facts(directory: Path) -> dict[str, Any]:
    """What the writer has noted of a result: its query, and which form its elements have."""
    path = directory / OWNER_FILE
    return dict(read_document(path, OWNER)) if path.exists() else {}


def _to_frame(elements: pa.Table) -> tuple[pl.DataFrame, list[str]]:
    """Elements with times as numbers, and the names that their columns have here."""
    names = [f"c{number}" for number in range(elements.num_columns - 2)]
    times = [elements.column(name).cast(pa.int64()) for name in (VALID_FROM, VALID_UNTIL)]
    columns = [*elements.columns[:-2], *times]
    frame = pl.DataFrame(pa.Table.from_arrays(columns, names=[*names, FROM, UNTIL]))
    return frame.with_columns(pl.col(UNTIL).fill_null(FOREVER)), names


def _from_frame(payload: pl.DataFrame, elements: pa.Table) -> pa.Table:
    """The payload with names and types of the elements that it came from."""
    schema = pa.schema(list(elements.schema)[:-2])
    return to_table(payload).rename_columns(schema.names).cast(schema)


def _instants(table: pa.Table, column: str) -> np.ndarray[Any, np.dtype[np.int64]]:
    instants: np.ndarray[Any, np.dtype[np.int64]]
    instants = table.column(column).cast(pa.int64()).fill_null(FOREVER).to_numpy()
    return instants
