"""Delta tables as sources of tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Final

import polars as pl
import pyarrow as pa

from strandline.connectors.sources.base import SourceArguments
from strandline.connectors.tables.feeds import polling
from strandline.connectors.tables.feeds.polling import DatabaseFeed, Version
from strandline.connectors.tables.store import TableStore
from strandline.connectors.traits import Needs
from strandline.core import types
from strandline.core.errors import SourceError, Span
from strandline.core.security.allow import Reach, url_reaches
from strandline.core.types import Type
from strandline.logical.catalog import ConnectorCall, SourceSchema, Table

NEEDS: Final = Needs("deltalake", "delta")


class DeltaFeed(DatabaseFeed):
    """`delta('directory', every => '1 second')`: the newest version, compared with the one before."""

    needs: ClassVar[Needs] = NEEDS

    def __init__(self, table: Table, store: TableStore) -> None:
        super().__init__(table, store)
        self.location, self.interval = _options(self.arguments)
        self.origin = self.location
        self._opened: Any = None

    @classmethod
    def reaches(cls, call: ConnectorCall) -> list[Reach]:
        return [url_reaches(_options(SourceArguments(call))[0])]

    @classmethod
    def knows(cls, call: ConnectorCall) -> SourceSchema | None:
        location, _ = _options(SourceArguments(call))
        return SourceSchema(tuple((f.name, _type(f.type)) for f in _schema(_open(location))), None)

    @classmethod
    def check(cls, table: Table, span: Span | None) -> None:
        assert table.source is not None, "it has a source"
        location, _ = _options(SourceArguments(table.source, span))
        polling.refuse_clauses(table, span)
        present = [field.name for field in _schema(_open(location))]
        if (error := polling.missing_columns(table, present, location, span)) is not None:
            raise error

    def has_news(self) -> bool:
        return int(self._newest().version()) != self.position.version

    def _newest(self) -> Any:
        if self._opened is None:
            self._opened = _open(self.location)
        else:
            with polling.named_errors(self.location, Exception):  # each object store has errors of its own
                self._opened.update_incremental()
        return self._opened

    def read(self, since: Version | None) -> tuple[pl.DataFrame, Version | None]:
        newest = self._newest()
        with polling.named_errors(self.location, Exception):
            rows = newest.to_pyarrow_table(columns=[name for name, _ in self.table.columns])
        return pl.DataFrame(rows), int(newest.version())


def _options(arguments: SourceArguments) -> tuple[str, float]:
    where = arguments.required(0, "directory")
    interval = polling.polling_interval(arguments)
    arguments.done(most=1)
    return where if "://" in where else str(Path(where).absolute()), interval


def _open(location: str) -> Any:
    library = NEEDS.load()
    try:
        return library.DeltaTable(location)
    except Exception as error:
        if not library.DeltaTable.is_deltatable(location):
            hint = "Write it first, or correct the path."
            raise SourceError(f"there is no Delta table in {location}", code="missing-table", hint=hint) from None
        raise polling.unreadable(location, error) from None


def _schema(table: Any) -> pa.Schema:
    schema: pa.Schema = pa.schema(table.schema().to_arrow())
    return schema


def _type(kind: pa.DataType) -> Type:
    """The type of a column here; what has none is read as a text."""
    if pa.types.is_decimal(kind):
        return types.decimal(kind.precision, kind.scale)
    tests = (
        (pa.types.is_boolean, types.BOOLEAN),
        (pa.types.is_int64, types.BIGINT),
        (pa.types.is_integer, types.INT),
        (pa.types.is_floating, types.DOUBLE),
        (pa.types.is_date, types.DATE),
        (pa.types.is_timestamp, types.TIMESTAMP),
    )
    return next((ours for is_kind, ours in tests if is_kind(kind)), types.VARCHAR)
