"""The `%%sql` magic: statements in a cell, run by a database."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

import strandline
from strandline.apps.notebook.live import LiveChart, LiveTable
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.database.query import Query


@magics_class
class SqlMagic(Magics):
    """Runs cells; the database is the notebook's own `db`, or one that is made and put there."""

    @magic_arguments()
    @argument("name", nargs="?", help="Name of the query, in SQL and in Python.")
    @argument("--db", default="db", help="Variable with the database; created if missing.")
    @argument("--engine", default="spark", choices=("spark", "local"), help="Engine of a new database.")
    @argument("--live", action="store_true", help="Show the result as a live table.")
    @argument("--chart", metavar="COLUMN", help="Show this column as a live chart over time.")
    @argument("--line", metavar="COLUMN", help="With --chart: a line per value of this column.")
    @argument("--wait", action="store_true", help="Wait until the sources end.")
    @cell_magic
    def sql(self, line: str, cell: str) -> Any:
        """Run statements. A query keeps running; the value of the cell is that of the last statement."""
        options = parse_argstring(self.sql, line)
        try:
            result = self._database(options).sql(cell, name=options.name)
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

    def _database(self, options: Any) -> Database:
        database = self.shell.user_ns.get(options.db)
        if database is None:
            database = strandline.connect(engine=options.engine)
            self.shell.user_ns[options.db] = database
        if not isinstance(database, Database):
            raise StrandlineError(
                f'the variable "{options.db}" is not a database',
                code="usage",
                hint=f"Write {options.db} = strandline.connect(), or name another variable with --db.",
            )
        return database
