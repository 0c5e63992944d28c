"""Results in tables of a database: all elements, or a table of the current snapshot.

Each batch is one transaction, and its number is written in it to `strandline_batches`, in the row of the sink. That row
is locked first: a replayed batch, or a process that was thought dead, finds that its work is done.

    strandline_batches (sink, owner, query, batch, complete_until)    a row per sink
    t                  shows => 'elements': the columns, valid_from, valid_until
    t                  shows => 'snapshot': the columns, row_id
    t__ends            row_id, valid_until: known ends of the rows of a snapshot
    t__waiting         row_id, the columns, valid_from, valid_until: elements that become valid later

The times of the two side tables are microseconds since 1970.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import polars as pl
import pyarrow as pa

from strandline.connectors.sinks.base import ResumePoint, Sink, SinkArguments, SinkBatch, SinkWriter, refuse_duplicates
from strandline.connectors.sinks.snapshot import ROW, SnapshotChanges, SnapshotRows, last_instant, step
from strandline.core.errors import SinkError
from strandline.core.log import SINK, WARNING, log_event
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.core.types import BIGINT, Column, Schema, Type
from strandline.runtime.kernels.batch import FROM, UNTIL
from strandline.runtime.result import VALID_FROM, VALID_UNTIL, from_result

Shows: TypeAlias = Literal["elements", "snapshot"]
BATCHES: Final = "strandline_batches"
ROW_ID: Final = "row_id"
SIDE_TABLES: Final = ("__ends", "__waiting")
_ATTEMPTS: Final = 6  # to write a batch where the connection breaks: over half a minute
_FIRST_PAUSE: Final = 1.0  # seconds; it doubles from one attempt to the next
_LOG_EVERY: Final = 10.0  # seconds between two lines about a lock that is waited for
_INSTANT: Final = Type("INSTANT")  # an instant of ours; each database has its own form of them


@dataclass(frozen=True, slots=True)
class RecordedTable:
    """The row of a sink in `strandline_batches`."""

    owner: str
    query: str
    batch: int


@dataclass(frozen=True, slots=True)
class TableSpec:
    """A table as we make it. The key, if there is one, is its column `row_id`."""

    name: str
    columns: tuple[tuple[str, Type], ...]
    keyed: bool = False

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.columns]


class StoreLost(Exception):
    """The connection broke, or could not be made: a transaction that was under way may have been committed or not."""


class StoreBusy(Exception):
    """Another session holds a lock for longer than a statement waits; the transaction was rolled back."""


class Store(ABC):
    """A database of table sinks: the statements that all of them understand, and the methods in which they differ."""

    location: str  # for messages
    unreachable: str  # the hint for a database that cannot be opened
    busy_seconds: float | None = None  # maximum wait for a foreign lock; None for no limit
    batches: str = BATCHES  # the table of batches, quoted
    parameter: ClassVar[str]  # the place of a value in a statement
    row_lock: ClassVar[str] = ""  # the clause that keeps a row from others until the end of the transaction
    forever: ClassVar[str]  # the watermark of a finished query
    _connection: Any = None  # it is opened when it is needed

    def exists(self) -> bool:
        """True if the database exists; the check must not create one."""
        return True

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """All or nothing."""

    @contextmanager
    def failures(self, errors: tuple[type[Exception], ...]) -> Iterator[None]:
        """Convert errors of the database to sink errors."""
        try:
            yield
        except errors as error:
            raise _refused(self.location, " ".join(str(error).split())) from None

    @abstractmethod
    def execute(self, statement: str, values: Sequence[object] = ()) -> Any:
        """The cursor of a statement."""

    @abstractmethod
    def type_of(self, kind: Type) -> str:
        """The type of a column."""

    def quote(self, name: str) -> str:
        """The name of a column in a statement."""
        return '"' + name.replace('"', '""') + '"'

    def quote_table(self, name: str) -> str:
        return self.quote(name)

    def lock(self, sink: str) -> RecordedTable | None:
        """The row of a sink, kept from others until the end of the transaction; None without one."""
        statement = f"SELECT owner, query, batch FROM {self.batches} WHERE sink = {self.parameter}{self.row_lock}"
        row = self.execute(statement, (sink,)).fetchone()
        return None if row is None else RecordedTable(*row)

    def make_batches_table(self) -> None:
        self.execute(
            f"CREATE TABLE IF NOT EXISTS {self.batches} (sink TEXT PRIMARY KEY, owner TEXT NOT NULL, query TEXT NOT"
            f" NULL, batch {self.type_of(BIGINT)} NOT NULL, complete_until {self.type_of(_INSTANT)})"
        )

    def enter(self, sink: str, owner: str, query: str, first: int) -> None:
        """A row for a new sink, whose first batch is yet to come."""
        values = ", ".join([self.parameter] * 4)
        self.execute(f"INSERT INTO {self.batches} VALUES ({values}, NULL)", (sink, owner, query, first - 1))

    def pass_over(self, sink: str, first: int) -> None:
        """Pass over the batches before one: the query of the sink had failed, and was added again."""
        place = self.parameter
        self.execute(f"UPDATE {self.batches} SET batch = {place} WHERE sink = {place}", (first - 1, sink))

    def remember(self, sink: str, batch: int, complete_until: Instant) -> None:
        place = self.parameter
        statement = f"UPDATE {self.batches} SET batch = {place}, complete_until = {place} WHERE sink = {place}"
        self.execute(statement, (batch, watermark_text(complete_until, self.forever), sink))

    @abstractmethod
    def columns(self, table: str) -> list[str] | None:
        """The columns of a table, or None if there is none."""

    def is_empty(self, table: str) -> bool:
        return self.execute(f"SELECT 1 FROM {self.quote_table(table)} LIMIT 1").fetchone() is None

    def create(self, table: TableSpec) -> None:
        """Make a table unless there is one."""
        columns = [f"{self.quote(name)} {self.type_of(kind)}" for name, kind in table.columns]
        if table.keyed:
            columns[table.names.index(ROW_ID)] += " PRIMARY KEY"
        self.execute(f"CREATE TABLE IF NOT EXISTS {self.quote_table(table.name)} ({', '.join(columns)})")

    @abstractmethod
    def append(self, table: TableSpec, frame: pl.DataFrame) -> None:
        """Add rows; the columns of the frame are those of the table in its order, in the form of `encoded`."""

    @abstractmethod
    def delete(self, table: TableSpec, rows: pl.Series) -> None:
        """Remove rows by their `row_id`."""

    @abstractmethod
    def read(self, table: TableSpec) -> pl.DataFrame:
        """All rows, in the form of `encoded`."""

    @abstractmethod
    def array_text(self, column: pl.Expr, kind: Type) -> pl.Expr:
        """An array as a text that the database understands."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @abstractmethod
    def cancel(self, insistent: bool) -> None:
        """Cancel a waiting statement from another thread; `insistent` if a request did not help."""


class TableWriter(SinkWriter):
    """Writer of a table; `table` may be qualified by a schema."""

    def __init__(self, store: Store, table: str, shows: Shows, query: str, columns: Schema) -> None:
        self._store = store
        self._query, self._columns, self._shows = query, columns, shows
        self._payload = [f"c{number}" for number in range(len(columns))]
        named = tuple((column.name, column.type) for column in columns)
        if shows == "elements":
            self._main = TableSpec(table, (*named, (VALID_FROM, _INSTANT), (VALID_UNTIL, _INSTANT)))
        else:
            self._main = TableSpec(table, (*named, (ROW_ID, BIGINT)), keyed=True)
        times = ((VALID_FROM, BIGINT), (VALID_UNTIL, BIGINT))
        self._ends = TableSpec(f"{table}__ends", ((ROW_ID, BIGINT), times[1]), keyed=True)
        self._waiting = TableSpec(f"{table}__waiting", ((ROW_ID, BIGINT), *named, *times), keyed=True)
        self._live: SnapshotRows | None = None
        self._live_batch = -1
        self._is_writing = False
        for spec in (self._main, self._waiting):
            refuse_duplicates(spec.names)

    @property
    def _all(self) -> list[TableSpec]:
        return [self._main] if self._shows == "elements" else [self._main, self._ends, self._waiting]

    def validate(self, resume_point: ResumePoint) -> None:
        if not self._store.exists():
            self._fit_unknown(None, resume_point)
            return
        self._patiently(lambda: self._fit(resume_point), attempts=1)

    def _fit(self, resume_point: ResumePoint) -> None:
        with self._store.transaction():
            recorded_table = self._store.lock(self._main.name) if self._store.columns(BATCHES) is not None else None
            present = self._store.columns(self._main.name)
            if recorded_table is None:
                self._fit_unknown(present, resume_point)
            else:
                self._fit_known(recorded_table, present, resume_point)
            if present is not None and present != self._main.names:
                raise SinkError(
                    f"{self._location} has the columns {', '.join(present)}",
                    code="sink-columns",
                    detail=f"The query {self._query} needs {', '.join(self._main.names)}, in this order.",
                    hint="Choose another table, or rename the columns of the query with AS.",
                )

    def _fit_unknown(self, present: list[str] | None, resume_point: ResumePoint) -> None:
        if resume_point.batch >= 0:
            resume_point.check(self._location, -1)
        if present is not None and not self._store.is_empty(self._main.name):
            raise SinkError(
                f"{self._location} already has rows that no sink wrote",
                code="results-exist",
                hint="Choose another table, or empty this one.",
            )

    def _fit_known(self, recorded_table: RecordedTable, present: list[str] | None, resume_point: ResumePoint) -> None:
        is_former = resume_point.fresh and not resume_point.replaces  # of a query that was dropped
        if recorded_table.owner != resume_point.owner or is_former:
            raise SinkError(
                f"{self._location} belongs to the query {recorded_table.query} of another checkpoint",
                code="results-exist",
                hint="Choose another table, or continue that query. To start over, drop the table and its side tables "
                f"and DELETE FROM {BATCHES} WHERE sink = '{self._main.name}'.",
            )
        resume_point.check(self._location, recorded_table.batch)
        if present is None and recorded_table.batch >= 0:
            resume_point.check(self._location, -1, expected=recorded_table.batch)

    def prepare(self, resume_point: ResumePoint) -> None:
        self._patiently(lambda: self._begin(resume_point), attempts=1)

    def _begin(self, resume_point: ResumePoint) -> None:
        with self._store.transaction():
            self._store.make_batches_table()
            for table in self._all:
                self._store.create(table)
            recorded = self._store.lock(self._main.name)
            if recorded is None:
                self._store.enter(self._main.name, resume_point.owner, self._query, resume_point.first)
            elif resume_point.replaces and recorded.batch < resume_point.first - 1:
                self._store.pass_over(self._main.name, resume_point.first)

    def write(self, sink_batch: SinkBatch) -> None:
        """Write a batch, with retries; the recorded batch number detects a commit that succeeded."""
        self._patiently(lambda: self._write(sink_batch), _ATTEMPTS)

    def interrupt(self) -> None:
        super().interrupt()
        if self._is_writing:
            threading.Thread(target=self._cancel, name="strandline-cancel", daemon=True).start()

    def _cancel(self) -> None:
        """Cancel until nothing is being written: a statement may begin just after another was cancelled."""
        began = time.monotonic()
        while self._is_writing:
            self._store.cancel(insistent=time.monotonic() - began > 1.0)
            time.sleep(0.1)

    def _patiently(self, write: Callable[[], None], attempts: int) -> None:
        """Write once the table is not locked; at most `attempts` times where the connection breaks."""
        began = time.monotonic()
        attempt, next_line = 1, began + _LOG_EVERY
        while True:
            self._is_writing = True
            try:
                return write()
            except StoreBusy as busy:
                waited = time.monotonic() - began
                if self._store.busy_seconds is not None and waited > self._store.busy_seconds:
                    raise _refused(self._store.location, f"{busy} (for {waited:.0f} s)") from None
                if time.monotonic() > next_line:
                    next_line += _LOG_EVERY
                    log_event(SINK, WARNING, "sink locked", location=self._location, waited_s=waited)
                pause = 0.0
            except StoreLost as lost:
                if attempts == 1:
                    raise _unreachable(self._store, str(lost)) from None
                if attempt == attempts:
                    after = f"{lost} (after {attempts} attempts in {time.monotonic() - began:.0f} s)"
                    raise _refused(self._store.location, after) from None
                pause = _FIRST_PAUSE * 2 ** (attempt - 1)
                attempt += 1
                about = {"attempt": attempt, "attempts": attempts, "pause_s": pause}
                log_event(SINK, WARNING, "sink retried", location=self._location, message=lost, **about)
            except SinkError:
                if self.stopping.is_set():
                    raise self.interruption(self._location) from None
                raise
            finally:
                self._is_writing = False
            if self.stopping.wait(pause):
                raise self.interruption(self._location)

    def _write(self, sink_batch: SinkBatch) -> None:
        live: SnapshotRows | None = None
        with self._store.transaction():
            recorded_table = self._store.lock(self._main.name)
            if recorded_table is None or recorded_table.batch < sink_batch.batch - 1:
                raise SinkError(
                    f"the row of {self._location} in {BATCHES} is missing or outdated",
                    code="results-missing",
                    hint=f"Restore the table and {BATCHES} from the same backup.",
                )
            if recorded_table.batch >= sink_batch.batch:
                return  # it was written before a crash
            frame = self._encoded(sink_batch.table)
            if self._shows == "elements":
                if frame.height:
                    self._store.append(self._main, frame.select(*self._payload, instant_text(pl.col(FROM, UNTIL))))
            else:
                # The cache is valid only if no other writer was active since.
                live = (
                    self._live
                    if self._live is not None and self._live_batch == recorded_table.batch
                    else self._loaded()
                )
                at = last_instant(sink_batch.complete_until)
                live, changes = step(live, frame, at, self._payload, sink_batch.begin)
                self._apply(changes)
            self._store.remember(self._main.name, sink_batch.batch, sink_batch.complete_until)
        self._live, self._live_batch = live, sink_batch.batch

    def _apply(self, changes: SnapshotChanges) -> None:
        # An order in which no key is there twice.
        main, ends, waiting = self._main, self._ends, self._waiting
        for table, rows in (
            (main, changes.deleted),
            (ends, changes.deleted),
            (ends, changes.continued),
            (waiting, changes.started),
        ):
            if len(rows):
                self._store.delete(table, rows)
        inserted = changes.inserted.select(*self._payload, ROW)
        for table, frame in ((main, inserted), (ends, changes.ends), (waiting, changes.deferred)):
            if frame.height:
                self._store.append(table, frame)

    def _loaded(self) -> SnapshotRows:
        """Elements that matter, read from the tables."""
        ends = self._store.read(self._ends).rename({ROW_ID: ROW, VALID_UNTIL: UNTIL})
        rows = self._renamed(self._store.read(self._main), [*self._payload, ROW])
        waiting = self._renamed(self._store.read(self._waiting), [ROW, *self._payload, FROM, UNTIL])
        valid = rows.join(ends, on=ROW, how="inner")
        if not valid.height == rows.height == ends.height:
            raise SinkError(
                f"{self._location} was modified externally: rows are missing or unexpected",
                code="results-missing",
                hint="Only this sink may write to the table and its side tables. Restore them, or start over.",
            )
        used = [frame.get_column(ROW).max() for frame in (rows, waiting) if frame.height]
        return SnapshotRows(valid, waiting, max((int(str(row)) for row in used), default=0) + 1)

    def _renamed(self, frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
        return frame.rename(dict(zip(frame.columns, names, strict=True)))

    def _encoded(self, table: pa.Table) -> pl.DataFrame:
        frame = from_result(table, self._columns)
        kinds = zip(self._columns, self._payload, strict=True)
        values = [encoded(pl.col(column.id), column, self._store).alias(name) for column, name in kinds]
        return frame.select(*values, pl.col(FROM), pl.col(UNTIL))

    @property
    def _location(self) -> str:
        return f'table "{self._main.name}" of {self._store.location}'

    def close(self) -> None:
        self._store.close()


def encoded(value: pl.Expr, column: Column, store: Store) -> pl.Expr:
    """Values in one of the few forms that every database takes: BIGINT, DOUBLE, BOOLEAN, and texts for the rest."""
    match column.type.name:
        case "BOOLEAN":
            return value.cast(pl.Boolean)
        case "INT" | "BIGINT" | "INTERVAL":
            return value.cast(pl.Int64)
        case "DOUBLE":
            return value.cast(pl.Float64)
        case "TIMESTAMP":
            return instant_text(value.cast(pl.Int64))
        case "ARRAY":
            return store.array_text(value, column.type)
    return value.cast(pl.String)


def form_of(kind: Type) -> pl.DataType:
    """The type of an encoded column."""
    forms = {"BOOLEAN": pl.Boolean(), "INT": pl.Int64(), "BIGINT": pl.Int64(), "INTERVAL": pl.Int64()}
    return forms.get(kind.name, pl.Float64() if kind.name == "DOUBLE" else pl.String())


def instant_text(instants: pl.Expr) -> pl.Expr:
    """Instants as texts in UTC that sort in their order; NULL for an end that never comes."""
    finite = pl.when(instants < FOREVER).then(instants).cast(pl.Datetime("us"))
    return finite.dt.strftime("%Y-%m-%d %H:%M:%S%.6f").str.strip_prefix("+")


def watermark_text(complete_until: Instant, forever: str) -> str | None:
    """The watermark as a text; None while there is none."""
    if complete_until in (BEFORE_ALL, FOREVER):
        return forever if complete_until == FOREVER else None
    return str(pl.select(instant_text(pl.lit(complete_until))).item())


def _refused(location: str, reason: str) -> SinkError:
    return SinkError(
        f"cannot write to {location}",
        code="sink-failed",
        detail=reason,
        hint="Fix the cause and restart the query; it resumes from this batch, which is written once.",
    )


def _unreachable(store: Store, reason: str) -> SinkError:
    return SinkError(f"cannot open {store.location}", code="sink-unwritable", detail=reason, hint=store.unreachable)


class TableSink(Sink):
    """Common part of the database sinks."""

    table: str
    shows: Shows

    def open(self, query: str, columns: Schema) -> SinkWriter:
        if self.shows not in get_args(Shows):
            raise SinkError(
                f"shows must be 'elements' or 'snapshot', not {self.shows!r}",
                code="sink-argument",
                hint="Write shows => 'elements' or shows => 'snapshot'.",
            )
        return TableWriter(self.store(), self.table, self.shows, query, columns)

    @property
    def bears_gaps(self) -> bool:
        return self.shows == "elements"

    @property
    def takes_changes(self) -> bool:
        return self.shows == "snapshot"

    @staticmethod
    def shows_of(arguments: SinkArguments) -> Shows:
        shows: Shows = arguments.option("shows", str, "elements")
        if shows not in get_args(Shows):
            raise arguments.error(
                f"option shows of {arguments.call.function}() must be 'elements' or 'snapshot', not {shows!r}"
            )
        return shows

    @abstractmethod
    def store(self) -> Store: ...

    @property
    def location(self) -> str:
        # The server may move; the row in strandline_batches identifies the table.
        return f"{self.kind} {self.table} {self.shows}"
