"""The magics `%%sql` and `%sql`: statements in a cell or on a line, run by a database.

A cell may be run again: what it or another cell has made gives way to what it makes now.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any
from weakref import WeakKeyDictionary

from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

import strandline
from strandline.apps.notebook.live import LiveChart, LiveTable
from strandline.core.errors import StrandlineError
from strandline.core.notices import print_notice
from strandline.database.database import Database
from strandline.database.query import Query, stop_all
from strandline.sql import ast
from strandline.sql.parser.statements import parse


class MadeByCells:
    """What cells have made in a database: names of the catalog, and the query of each cell."""

    def __init__(self, database: Database) -> None:
        self._database = weakref.proxy(database)
        self.names: set[str] = set()
        self.queries: dict[str, Query] = {}

    def make_room(self, statement: ast.Creation) -> None:
        """Drop what a cell has created under the name of a statement, with everything that reads it."""
        name, catalog = statement.name.name, self._database.catalog
        if name.lower() not in self.names or statement.if_not_exists or statement.replace:
            return
        self._stop([query for query in self._database.queries if name.lower() == query.name.lower()])
        if name not in catalog:
            return
        gone = {name.lower()}
        while readers := [q for q in self._database.queries if gone & {read.lower() for read in q.reads}]:
            self._stop(readers)
            gone |= {query.name.lower() for query in readers}
        before = {stream.name for stream in catalog}
        kind = catalog.get(name).word.upper()
        self._database.execute(ast.Drop(kind, statement.name, True, True, span=statement.span))
        others = sorted(before - {stream.name for stream in catalog} - {name})
        if others:
            print(f"{', '.join(others)} read {name}, and went with it: run their cells again", file=sys.stderr)

    def make_room_for_query(self, cell: str, name: str | None) -> str | None:
        """Stop the query that a cell has started before, or one of the same name; returns the name of the next one."""
        before = self.queries.pop(cell, None)
        same = [query for query in self.queries.values() if name is not None and query.name.lower() == name.lower()]
        self._stop([*same, *([] if before is None else [before])])
        unnamed = before is not None and name is None and before.name.lower() not in self.names
        return before.name if before is not None and unnamed else name

    def _stop(self, queries: list[Query]) -> None:
        stop_all(queries)
        for query in queries:
            if query in self._database.queries:
                self._database.queries.remove(query)


@magics_class
class SqlMagic(Magics):
    """Runs cells; the database is the notebook's own `db`, or one that is made and put there."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        self._made: WeakKeyDictionary[Database, MadeByCells] = WeakKeyDictionary()

    @magic_arguments()
    @argument("name", nargs="?", help="Name of the query, in SQL and in Python.")
    @argument("--db", default="db", help="Variable with the database; created if missing.")
    @argument("--engine", default="spark", choices=("spark", "local"), help="Engine of a new database.")
    @argument("--live", action="store_true", help="Show the result as a live table.")
    @argument("--chart", metavar="COLUMN", help="Show this column as a live chart over time.")
    @argument("--line", metavar="COLUMN", help="With --chart: a line per value of this column.")
    @argument("--wait", action="store_true", help="Wait until the sources end.")
    @line_cell_magic
    def sql(self, line: str, cell: str | None = None) -> Any:
        """Run statements. A query keeps running; the value of the cell is that of the last statement. `%sql` takes the
        statements from its line, and no options."""
        options = parse_argstring(self.sql, "" if cell is None else line)
        try:
            result = self._run(self._database(options), line if cell is None else cell, options.name)
            if not isinstance(result, Query):
                return result
            self.shell.user_ns[options.name or result.name] = result
            shown: Any = result
            if options.chart:
                shown = LiveChart(result, options.chart, options.line)
            elif options.live:
                shown = LiveTable(result)
            if options.wait:
                result.await_end()
                if shown is not result:
                    shown.refresh()
            return shown
        except StrandlineError as error:
            # One message with a caret, as everywhere; a trace would show our own lines and not the user's.
            print(error.render(), file=sys.stderr)
            return None

    def _run(self, database: Database, text: str, name: str | None) -> Any:
        """Run statements in place of what cells have made under their names, and of the query that this cell has
        started before."""
        statements = parse(text)
        made = self._made.setdefault(database, MadeByCells(database))
        cell = self._cell_id() or text
        name = made.make_room_for_query(cell, name)
        result: Any = None
        for statement in statements:
            if isinstance(statement, ast.Creation):
                made.make_room(statement)
            result = database.execute(statement, name=name)
            if isinstance(statement, ast.Creation):
                made.names.add(statement.name.name.lower())
        if isinstance(result, Query):
            made.queries[cell] = result
        return result

    def _cell_id(self) -> str | None:
        """The id that the front end gives to a cell, if it gives one: it stays when the text changes."""
        parent: dict[str, Any] = getattr(self.shell, "get_parent", dict)() or {}
        cell: str | None = parent.get("metadata", {}).get("cellId")
        return cell

    def _database(self, options: Any) -> Database:
        database = self.shell.user_ns.get(options.db)
        if database is None:
            database = strandline.connect(engine=options.engine)
            database.catalog.notices.show = print_notice
            self.shell.user_ns[options.db] = database
        if not isinstance(database, Database):
            raise StrandlineError(
                f'the variable "{options.db}" is not a database',
                code="usage",
                hint=f"Write {options.db} = strandline.connect(), or name another variable with --db.",
            )
        return database
