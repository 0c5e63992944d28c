"""Row groups of a Parquet file to frames; one that is damaged is rejected as a whole, and the others are read."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connectors.sources.files.page_headers import check_pages
from strandline.connectors.sources.files.units import FileUnit
from strandline.connectors.sources.inferred_types import flatten_fields

# Exceptions of libraries for a damaged page, footer or value. A panic of Polars is no Exception.
READ_ERRORS: Final = (
    pa.ArrowException,
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    OSError,
    ValueError,
    OverflowError,
    MemoryError,
)


def read_row_groups(path: str, unit: FileUnit, columns: Sequence[str]) -> pl.DataFrame:
    """Some columns of a unit. Polars takes half the time of Arrow, but maps some types differently: a Date to a
    Datetime, say. Such columns are read by Arrow."""
    types = types_of(path)
    scan = pl.scan_parquet(path, glob=False, hive_partitioning=False, parallel="none", use_statistics=False)
    try:
        with without_panics:
            read = scan.collect_schema()
            alike = all(read.get(root) == types[root] for root in {root_of(name, types) for name in columns})
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):  # a type or a footer that it cannot read
        alike = False
    if alike:
        check_pages(path, range(unit.begin, unit.end), {root_of(name, types) for name in columns})
        with without_panics:
            frame = scan.slice(unit.row - 1, unit.rows).select(_value_at(name, types) for name in columns).collect()
    else:
        with pq.ParquetFile(path, memory_map=True) as file:
            roots = list(dict.fromkeys(root_of(name, types) for name in columns))
            table = file.read_row_groups(list(range(unit.begin, unit.end)), columns=roots, use_threads=False)
        frame = _to_polars(table).select(_value_at(name, types) for name in columns)
    if frame.height != unit.rows:
        raise ValueError(f"{frame.height} rows instead of {unit.rows}")
    return frame


def root_of(name: str, types: Mapping[str, pl.DataType]) -> str:
    """The column of a file that has a declared one: itself, or the struct at the beginning of its path."""
    root = name.partition(".")[0]
    return root if isinstance(types.get(root), pl.Struct) else name


def _value_at(name: str, types: Mapping[str, pl.DataType]) -> pl.Expr:
    """A column, or the value of a path within a struct, under the name that is declared."""
    if root_of(name, types) == name:
        return pl.col(name)
    root, *path = name.split(".")
    value = pl.col(root)
    for field in path:
        value = value.struct.field(field)
    return value.alias(name)


class _Panics:
    """Suppresses the panic report of Polars on standard error for a damaged page; passes on other output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._screen = self._aside = -1

    def __enter__(self) -> None:
        with self._lock:
            self._readers += 1
            if self._readers == 1:
                try:
                    self._screen = os.dup(2)
                    self._aside = _memory_file()
                    os.dup2(self._aside, 2)
                except OSError:  # no standard error, or no file left to open
                    self._give_back()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            self._readers -= 1
            if self._readers == 0 and self._aside >= 0:
                os.dup2(self._screen, 2)
                size = os.lseek(self._aside, 0, os.SEEK_END)
                if size:
                    text = os.pread(self._aside, size, 0)
                    if b"panicked at" not in text:
                        os.write(2, text)
            if self._readers == 0:
                self._give_back()

    def _give_back(self) -> None:
        for handle in (self._screen, self._aside):
            if handle >= 0:
                os.close(handle)
        self._screen = self._aside = -1


def _memory_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("strandline-panics")
    handle, path = tempfile.mkstemp()
    os.unlink(path)
    return handle


without_panics: Final = _Panics()


def why_unreadable(error: BaseException) -> str:
    """First line of a library's message; a panic's message is internal."""
    if isinstance(error, pl.exceptions.PanicException):
        return "a page is damaged"
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def column_names(schema: pa.Schema) -> list[str]:
    """The columns of a file, and the paths to those within structs."""
    paths = [name for name, _ in flatten_fields(field for field in schema if pa.types.is_struct(field.type))]
    return [*schema.names, *(path for path in paths if path not in schema.names)]


def column_types(schema: pa.Schema, columns: Sequence[str]) -> Mapping[str, pl.DataType]:
    """The types of some columns, as Polars has them; those within structs by their paths."""
    roots = {name: name if name in schema.names else name.partition(".")[0] for name in columns}
    types = _to_polars(pa.schema([schema.field(root) for root in dict.fromkeys(roots.values())]).empty_table()).schema
    return {name: types[name] if name == root else _type_at(types[root], name) for name, root in roots.items()}


def _type_at(kind: pl.DataType, path: str) -> pl.DataType:
    for name in path.split(".")[1:]:
        assert isinstance(kind, pl.Struct), "paths lead through structs"
        inner = kind.to_schema()[name]
        kind = inner if isinstance(inner, pl.DataType) else inner()
    return kind


def _to_polars(table: pa.Table) -> pl.DataFrame:
    """Polars panics over a damaged schema, such as a name of a column that is not UTF-8."""
    with without_panics:
        return pl.DataFrame(table)


@lru_cache(maxsize=64)
def _types_of(path: str, size: int, changed: int) -> Mapping[str, pl.DataType]:
    with pq.ParquetFile(path, memory_map=True) as file:
        names = column_names(file.schema_arrow)
        return column_types(file.schema_arrow, [name for name in names if names.count(name) == 1])


def types_of(path: str) -> Mapping[str, pl.DataType]:
    """The types of a file's columns; read once, unless the file was changed."""
    status = os.stat(path)
    return _types_of(path, status.st_size, status.st_mtime_ns)
