"""Files that a statement names in FROM or DESCRIBE: a stream with the columns and the time that the files have, or a
constant table where no column is a time.

They are declared under their paths when a statement names them, and again when they have changed.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from strandline.connectors.sources.base import confine_source
from strandline.core.errors import CatalogError
from strandline.logical.catalog import Catalog, ConnectorCall, Table
from strandline.sql import ast
from strandline.sql.binder.create_stream import bind_connector, written

if TYPE_CHECKING:
    from strandline.database.tables import Tables

# The call, and the files with their sizes and times of change.
_Version: TypeAlias = tuple[str, tuple[tuple[str, int, int], ...]]


class FileTables:
    """The files of a database that statements have named."""

    def __init__(self, catalog: Catalog, tables: Tables) -> None:
        self._catalog, self._tables = catalog, tables
        self._versions: dict[str, _Version] = {}  # by name

    def declare(
        self,
        statement: ast.Statement,
        create_stream: Callable[[ast.CreateStream], None],
        create_table: Callable[[ast.CreateTable], None],
        has_time: Callable[[ast.Identifier, ast.Connector], bool],
    ) -> None:
        """Declare the files that a statement names, as far as they are new or have changed."""
        for table in _files_of(statement):
            name, source = table.name, table.source
            assert source is not None, "it names a file"
            call = bind_connector(source)
            confine_source(call, self._catalog.allow, source.span)
            version = _version_of(call)
            if self._versions.get(name.name) == version and name.name in self._catalog:
                continue
            self._drop(name)
            if has_time(name, source):
                create_stream(ast.CreateStream(name, (), source, None, None, None, span=source.span))
            else:
                create_table(ast.CreateTable(name, (), (), (), source=source, constant=True, span=source.span))
            self._versions[name.name] = version

    def _drop(self, name: ast.Identifier) -> None:
        """Forget what was declared of an earlier state of a file; queries that run keep what they have."""
        if name.name not in self._catalog:
            return
        existing = self._catalog.get(name.name)
        if name.name not in self._versions:
            raise CatalogError(
                f'"{name.name}" is also the name of {existing.word} "{existing.name}"',
                code="stream-exists",
                hint=f"Read that by its name in double quotes, {written(existing.name)}, or DROP it first.",
                span=name.span,
            )
        self._catalog.forget(existing)
        if isinstance(existing, Table):
            self._tables.drop(existing)


def _files_of(statement: ast.Statement) -> Iterator[ast.StreamTable]:
    pending: list[ast.Node] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.StreamTable) and node.source is not None:
            yield node
        pending.extend(ast.children(node))


def _version_of(call: ConnectorCall) -> _Version:
    pattern = str(call.arguments[0])
    pattern = os.path.join(pattern, "*") if os.path.isdir(pattern) else pattern
    files: list[tuple[str, int, int]] = []
    for path in sorted(glob.glob(pattern, recursive=True)):
        try:
            status = os.stat(path)
        except OSError:
            continue
        files.append((path, status.st_size, status.st_mtime_ns))
    return repr((call.function, call.arguments, sorted(call.options.items()))), tuple(files)
