"""`strandline run`: the queries of a script until their sources end; results in files, or printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.apps.connection import Stopped, connect_engine, stoppable
from strandline.apps.console import await_all, err_console, out_console, read_file, say, show_log, status, summary
from strandline.core.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.apps.row_printer import RowPrinter
    from strandline.connectors.sinks import Sink
    from strandline.database.database import Database
    from strandline.database.query import Query
    from strandline.database.script import DeferredStatements
    from strandline.database.script_changes import Placement


@dataclass(frozen=True, slots=True)
class ScriptRun:
    """What `strandline run` was called with; `options` go to `strandline.connect`."""

    script: Path
    out: Path | None = None
    checkpoint: Path | None = None
    engine: str = "spark"
    allow: list[str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    form: str = "table"
    limit: int | None = None
    fresh: bool = False
    update: bool = False

    @property
    def absolute_out(self) -> Path | None:
        return self.out.absolute() if self.out is not None else None

    @property
    def tables(self) -> Path | None:
        """Where tables are kept."""
        if self.checkpoint is not None:
            return self.checkpoint / "tables"
        return self.out / ".strandline" / "tables" if self.out is not None else None


def run_script(run: ScriptRun) -> None:
    """Run all queries of a script until the sources end."""
    text = read_file(run.script)
    if run.fresh:
        start_over(run, text)
    with stoppable(), connect_engine(run.engine, run.allow, tables=run.tables, **run.options) as database:
        run_statements(run, database, text)


def start_over(run: ScriptRun, text: str) -> None:
    """Remove what earlier runs of a script have left, and say what that is."""
    from strandline.apps.start_over import find_leftovers, remove_leftovers

    leftovers = find_leftovers(text, run.absolute_out, run.checkpoint, run.tables)
    for leftover in leftovers:
        err_console.print(f"--fresh deletes {leftover.what}: {leftover.path}", markup=False, soft_wrap=True)
    remove_leftovers(leftovers)


def run_statements(
    run: ScriptRun, database: Database, text: str, interrupted: Callable[[], bool] = lambda: False
) -> bool:
    """Run the statements of a script; false if it was interrupted before its sources have ended."""
    from strandline.database.query import stop_all
    from strandline.database.script import place_script, read_script, refuse_busy_checkpoints

    recorded = run.out or run.checkpoint
    after = "" if recorded is not None else ", after a run with --out DIR,"
    database.catalog.notices.diagnosis = f"strandline why {{query}} --out {recorded or 'DIR'}{after}"
    statements = read_script(database, text)
    if statements.outputs:
        say("\n\n".join(statements.outputs) + "\n")
    _show_looks(database, statements)
    if not statements.queries and (statements.outputs or statements.looks):
        return True
    printer = _make_printer(run, statements)
    placement = place_script(database, statements, run.absolute_out, run.checkpoint, _printing(printer))
    if not run.options.get("take_over"):
        refuse_busy_checkpoints(placement)
    if placement.changes:  # rows that are printed are for another reader
        console = out_console if printer is None else err_console
        console.print(f"{placement.table()}\n", markup=False, soft_wrap=True)
    placement.check(update=run.update)
    began = time.monotonic()
    queries = _start(run, database, placement)
    if not queries:
        return True
    try:
        ended = await_all(queries, interrupted)
    except (Stopped, KeyboardInterrupt):
        with status("stopping"):
            stop_all(queries)
        _say_stopped(run)
        raise Stopped from None
    if printer is not None:
        printer.close()
    if ended:
        summary(queries, run.out, time.monotonic() - began, printed=printer is not None)
    return ended


def _show_looks(database: Database, statements: DeferredStatements) -> None:
    """Print the rows of each SELECT … LIMIT n."""
    for look in statements.looks:
        with status("starting") as show_phase:
            database.warm(show_phase)
            rows = str(database.execute(look))
        say(rows + "\n")


def _printing(printer: RowPrinter | None) -> Sink | None:
    """The sink of queries whose rows are printed."""
    if printer is None:
        return None
    from strandline.apps.row_printer import PrintedRows

    return PrintedRows(printer)


def _start(run: ScriptRun, database: Database, placement: Placement) -> Sequence[Query]:
    from strandline.database.script import start_placed

    with status("starting") as show_phase:
        database.warm(show_phase)
        show_log(database.log_file)
        show_phase("planning")
        return start_placed(database, placement, run.absolute_out, update=run.update)


def _make_printer(run: ScriptRun, statements: DeferredStatements) -> RowPrinter | None:
    """The printer of the rows of queries that have no other sink; None if their results go to files."""
    from strandline.apps.row_formats import parse_format
    from strandline.apps.row_printer import TABLE_ROWS, RowPrinter

    form = parse_format(run.form, ("table", "csv", "json"))
    if run.out is not None:
        if run.form != "table" or run.limit is not None:
            raise StrandlineError(
                "--format and --limit are for printed rows, and --out writes files",
                code="usage",
                hint="Leave --out out, or read the files with `strandline results`.",
            )
        return None
    written = [query for query in statements.queries if query.sink is not None]
    if written and run.checkpoint is None and any(query.sink and query.sink.location for query in written):
        raise StrandlineError(
            f"{written[0].name} writes to a sink, and nothing would remember how far it came",
            code="usage",
            hint="Add --checkpoint DIR, or --out DIR, so that the run can be resumed.",
        )
    printed = [query for query in statements.queries if query.sink is None]
    if form == "csv" and len(printed) > 1:
        raise StrandlineError(
            f"CSV has the rows of one query, and the script has {len(printed)}",
            code="usage",
            hint="Use --format json, whose lines name their query, or write files with --out DIR.",
        )
    limit = run.limit if run.limit is not None else TABLE_ROWS if form == "table" else 0
    return RowPrinter(form, limit or None, several=len(printed) > 1) if printed else None


def _say_stopped(run: ScriptRun) -> None:
    """Say how to go on: on Spark where the run stopped, with the state that the checkpoint has."""
    recorded = run.checkpoint or run.out
    if recorded is None:
        text = "stopped"
    elif run.engine == "local":
        text = f"stopped; the local engine cannot resume: remove {recorded} to start again, or use --engine spark"
    else:
        text = "stopped; run the same command again to resume"
    err_console.print(text, markup=False, soft_wrap=True)
