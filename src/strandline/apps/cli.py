"""The command line: thin, it calls the engine and prints."""

from __future__ import annotations

import json
import logging
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

import strandline
from strandline.apps.console import await_all, err_console, out_console, read_file, say, show_log, status, summary
from strandline.core.errors import StrandlineError
from strandline.core.faults import explain_fault
from strandline.core.log import start_log, write_log
from strandline.core.security.allow import Allow

if TYPE_CHECKING:
    from strandline.database.database import Database

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=strandline.__doc__)

EngineOption = Annotated[str, typer.Option(help="spark, or local: one process, no Spark, no restart.")]
MasterOption = Annotated[str | None, typer.Option(help="Spark master URL; by default this machine's cores.")]
ShardsOption = Annotated[
    int | None,
    typer.Option("--shards", "--buckets", min=1, help="Number of state shards; default: the cores, locally 1."),
]
BatchRowsOption = Annotated[int, typer.Option(min=1, help="Approximate rows of a stream per batch.")]
TakeOverOption = Annotated[
    bool, typer.Option("--take-over", help="Take over the checkpoint although another run seems to write it.")
]
AllowOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Restrict SQL to the listed resources: dir:/data, host:broker:9092, connector:name, function:name,"
        " secret:env:NAME; may be repeated."
    ),
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show stack traces, and the log on standard error.")]
LogOption = Annotated[
    Path | None, typer.Option("--log", help="Append starts, failures and retries to this file, a line each.")
]
LogLevelOption = Annotated[
    str | None,
    typer.Option(help="Minimum level of the log: debug, info, warning or error; without a file, on standard error."),
]
_BENCHES = (
    "join, aggregate, filter, latency, growth, operators, changes, forms, costs, orders, shedding, nexmark, tables, "
    "enrich, or all."
)


class Stopped(Exception):
    """The user or the system requested a stop."""


def main() -> None:
    """Run the command line; errors are one message, and exit code 0 means that all went well."""
    debug = "--debug" in sys.argv
    if not debug:  # libraries that report an interrupt with a stack trace
        logging.getLogger().addHandler(logging.NullHandler())
    else:
        write_log(None)
    try:
        code = app(standalone_mode=False)  # an exit code, where a command left with one
        sys.exit(code if isinstance(code, int) else 0)
    except StrandlineError as error:
        err_console.print(error.render(), markup=False, soft_wrap=True)
        if debug:
            err_console.print_exception()
        sys.exit(1)
    except (Stopped, KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except Exception as error:
        if hasattr(error, "format_message"):  # a wrong option or argument: click's own words
            err_console.print(f"error[usage]: {error.format_message()}", markup=False)
            sys.exit(2)
        if (named := explain_fault(error)) is not None:
            err_console.print(named.render(), markup=False, soft_wrap=True)
            sys.exit(1)
        if debug:
            err_console.print_exception()
        else:
            err_console.print(f"error[internal]: {type(error).__name__}: {_words(error)}", markup=False, soft_wrap=True)
            err_console.print("hint: This is a defect of strandline. Run again with --debug for the stack trace.")
        sys.exit(1)


@app.command()
def run(
    script: Annotated[Path, typer.Argument(help="A file of SQL statements.")],
    out: Annotated[Path, typer.Option(help="Directory for the results: one Parquet data set per query.")],
    engine: EngineOption = "spark",
    master: MasterOption = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Directory for checkpoints; default: inside --out.")] = None,
    shards: ShardsOption = None,
    batch_rows: BatchRowsOption = 1_000_000,
    take_over: TakeOverOption = False,
    allow: AllowOption = None,
    log: LogOption = None,
    log_level: LogLevelOption = None,
    debug: DebugOption = False,
) -> None:
    """Run all queries of a script until the sources end, or until Ctrl-C. Run it again to resume."""
    from strandline.database.query import stop_all
    from strandline.database.script import read_script, refuse_busy_checkpoints, start_script

    text = read_file(script)
    start_log(log, log_level)
    options = {"master": master, "shards": shards, "batch_rows": batch_rows, "take_over": take_over}
    tables = (checkpoint or out / ".strandline") / "tables"
    with _stoppable(), _connect(engine, allow, tables=tables, **options) as database:
        statements = read_script(database, text)
        if statements.outputs:
            say("\n\n".join(statements.outputs) + "\n")
        if not statements.queries and statements.outputs:
            return
        if not take_over:
            refuse_busy_checkpoints(statements, out.absolute(), checkpoint)
        began = time.monotonic()
        with status("starting") as show_phase:
            database.warm(show_phase)
            show_log(database.log_file)
            show_phase("planning")
            queries = start_script(database, statements, out.absolute(), checkpoint)
        try:
            await_all(queries)
        except (Stopped, KeyboardInterrupt):
            with status("stopping"):
                stop_all(queries)
            err_console.print("stopped; run the same command again to resume")
            raise Stopped from None
        summary(queries, out, time.monotonic() - began)


@app.command()
def shell(
    engine: EngineOption = "spark",
    init: Annotated[Path | None, typer.Option(help="A file of SQL statements to run first.")] = None,
    master: MasterOption = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Directory for checkpoints of named queries.")] = None,
    shards: ShardsOption = None,
    batch_rows: BatchRowsOption = 1_000_000,
    keep: Annotated[int, typer.Option(min=1, help="Elements of each result that stay in memory.")] = 1_000_000,
    allow: AllowOption = None,
    log: LogOption = None,
    log_level: LogLevelOption = None,
    debug: DebugOption = False,
) -> None:
    """Run SQL and dot commands interactively, with live results. Spark starts in the background."""
    from strandline.apps.shell.loop import run_shell
    from strandline.apps.shell.startup import Startup

    start_log(log, log_level)
    options = {"master": master, "checkpoint": checkpoint, "shards": shards, "batch_rows": batch_rows, "keep": keep}
    with _stoppable():
        raise typer.Exit(run_shell(Startup(_engine(engine), allow=Allow.parse(allow or ()), **options), init))


@app.command()
def explain(
    script: Annotated[Path, typer.Argument(help="A file of SQL statements, or - for standard input.")],
    shards: Annotated[int, typer.Option("--shards", "--buckets", min=1, help="Number of state shards.")] = 2,
    allow: AllowOption = None,
    debug: DebugOption = False,
) -> None:
    """Show the plans of all queries of a script without running them."""
    from strandline.database.script import read_script

    with _connect("local", allow, shards=shards) as database:
        statements = read_script(database, sys.stdin.read() if str(script) == "-" else read_file(script))
        for query in statements.queries:
            text = database.explain(replace(query, shedding=None))
            say(f"{query.name}\n{text}")


@app.command()
def verify(
    script: Annotated[Path, typer.Argument(help="A file of SQL statements.")],
    engine: EngineOption = "local",
    database: Annotated[str, typer.Option(help="The oracle: duckdb or postgresql.")] = "duckdb",
    query: Annotated[str | None, typer.Option(help="Verify only this query.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0, help="Stop unbounded sources after this time.")] = None,
    instants: Annotated[int | None, typer.Option(min=1, help="Compare at most this many instants per query.")] = None,
    dsn: Annotated[
        str | None, typer.Option(help="Connection string of a PostgreSQL server; default: a temporary one.")
    ] = None,
    master: MasterOption = None,
    shards: ShardsOption = None,
    batch_rows: BatchRowsOption = 1_000_000,
    allow: AllowOption = None,
    log_level: LogLevelOption = None,
    debug: DebugOption = False,
) -> None:
    """Run a script and compare its results at every instant with those of another database."""
    from strandline.apps.verify.report import exit_code, render
    from strandline.apps.verify.script import open_oracle
    from strandline.apps.verify.script import verify as verify_script

    start_log(level=log_level)
    text = read_file(script)
    options = {"master": master, "shards": shards, "batch_rows": batch_rows}
    with _connect(engine, allow, **options) as ours, open_oracle(database, dsn) as theirs:
        with status("running") as show_phase:
            verdicts = verify_script(ours, text, theirs, only=query, seconds=seconds, most=instants, note=show_phase)
        say(render(verdicts, theirs.dialect.name))
    raise typer.Exit(exit_code(verdicts))


@app.command()
def why(
    query: Annotated[str, typer.Argument(help="The name of a query.")],
    out: Annotated[Path, typer.Option(help="The --out, or --checkpoint, of its run.")],
    debug: DebugOption = False,
) -> None:
    """Tell why a query of a run has no results: silent sources, time that stands still, operators without output."""
    from strandline.database.introspection.diagnose import explain_why, read_counters

    say(explain_why(read_counters(out, query)))


@app.command(name="test")
def play_scenarios(
    files: Annotated[list[Path], typer.Argument(help="Scenario files.")],
    engine: EngineOption = "local",
    master: MasterOption = None,
    update: Annotated[bool, typer.Option("--update", help="Write the actual results into the files.")] = False,
    shards: ShardsOption = None,
    batch_rows: BatchRowsOption = 1_000_000,
    allow: AllowOption = None,
    log_level: LogLevelOption = None,
    debug: DebugOption = False,
) -> None:
    """Run scenario tests: send events to queries and compare the results with the expected ones."""
    from strandline.apps.scenario.play import play
    from strandline.apps.scenario.report import corrected, render
    from strandline.apps.scenario.text import read_scenario

    start_log(level=log_level)
    options = {"master": master, "shards": shards, "batch_rows": batch_rows}
    missed = False
    for path in files:
        scenario = read_scenario(read_file(path))
        with _connect(engine, allow, **options) as database, status(f"playing {path}"):
            outcomes = play(scenario, database)
        missed |= not all(outcome.met for outcome in outcomes)
        say(render(str(path), scenario, outcomes))
        if update:
            path.write_text(corrected(scenario, outcomes))
    if missed and not update:
        raise typer.Exit(1)


@app.command()
def doctor(
    checkpoint: Annotated[
        Path | None, typer.Option(help="Check every file of a checkpoint, or of all checkpoints below a directory.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the examination of checkpoints as JSON.")] = False,
    debug: DebugOption = False,
) -> None:
    """Check the installation, or a checkpoint, and report problems."""
    if checkpoint is not None:
        _examine_checkpoints(checkpoint, as_json)
        return
    from strandline.apps.doctor import examine, render

    with status("checking the environment"):
        report = examine(start_spark=True)
    out_console.print(render(report), soft_wrap=True)
    if not report.ok:
        raise typer.Exit(1)


def _examine_checkpoints(directory: Path, as_json: bool) -> None:
    from strandline.runtime.checkpoint.examine import examine, find_checkpoints, render, to_json

    with status("checking"):
        examinations = [examine(path) for path in find_checkpoints(directory)]
    if as_json:
        print(json.dumps([to_json(examination) for examination in examinations], indent=2))
    else:
        text = "\n".join(render(examination) for examination in examinations)
        say(text)
    if any(examination.problems for examination in examinations):
        raise typer.Exit(1)


@app.command()
def repair(
    checkpoint: Annotated[Path, typer.Option(help="A checkpoint, or a directory with checkpoints.")],
    forget_results: Annotated[
        bool, typer.Option("--forget-results", help="Continue without results that are missing or altered.")
    ] = False,
    debug: DebugOption = False,
) -> None:
    """Roll a damaged checkpoint back to its last intact batch, and report what is discarded."""
    from strandline.runtime.checkpoint.examine import find_checkpoints
    from strandline.runtime.checkpoint.repair import render
    from strandline.runtime.checkpoint.repair import repair as repair_checkpoint

    for path in find_checkpoints(checkpoint):
        with status(f"repairing {path}"):
            done = repair_checkpoint(path, forget_results=forget_results)
        say(render(done))


@app.command()
def sbom(debug: DebugOption = False) -> None:
    """Print the software bill of materials of this installation as CycloneDX JSON."""
    from strandline.apps.sbom import bill_of_materials

    print(json.dumps(bill_of_materials(), indent=2))


@app.command()
def demo(
    seconds: Annotated[int, typer.Option(min=5, help="Duration of the generated stream.")] = 20,
    engine: EngineOption = "spark",
    log_level: LogLevelOption = None,
    debug: DebugOption = False,
) -> None:
    """Show live continuous queries over a generated stream."""
    from strandline.apps.demo import show

    start_log(level=log_level)
    with _stoppable():
        show(out_console, seconds, _engine(engine))


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Directory to create.")] = Path("."),
    debug: DebugOption = False,
) -> None:
    """Create an example project: a script and its data."""
    from strandline.apps.init_project import write_project

    first, second = write_project(directory)
    say(f"explore it:  {first}\nrun it:      {second}")


@app.command()
def bench(
    name: Annotated[str, typer.Argument(help=_BENCHES)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
    rows: Annotated[
        int | None, typer.Option("--rows", "--events", help="Fewer rows (of shedding: seconds), for a quick run.")
    ] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(help="Only this query of nexmark, costs or orders, or part of enrich; may be repeated."),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each engine; the best counts.")] = 2,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Of costs: ten shapes that the model was not improved with.")
    ] = False,
    seconds: Annotated[float | None, typer.Option(min=1, help="Of enrich: the length of each run; default 10.")] = None,
    debug: DebugOption = False,
) -> None:
    """Benchmark strandline against plain Spark; `operators` measures each operator alone."""
    from strandline.apps.bench.run import report, run_bench

    results = run_bench(name, rows, repeat, err_console, query or (), held_out, seconds)
    if as_json:
        print(json.dumps(results, indent=2))
    else:
        report(results, out_console)


@app.command()
def calibrate(
    out: Annotated[Path | None, typer.Option(help="A file for the constants; default: in the cache directory.")] = None,
    debug: DebugOption = False,
) -> None:
    """Measure the operator costs of this machine for the planner; takes about a minute."""
    from strandline.apps.bench.calibrate import calibrate as measure
    from strandline.apps.bench.calibrate import show, write

    with status("measuring") as show_phase:
        prices = measure(lambda what: show_phase(f"measuring: {what}"))
    path = write(prices, out)
    say(f"{show(prices)}\nwritten to {path}")


@app.command()
def papers(
    name: Annotated[str, typer.Argument(help="ayad-naughton, golab-ozsu or kraemer-pna.")],
    queries: Annotated[int, typer.Option(min=1, help="Number of random queries of ayad-naughton.")] = 1000,
    scale: Annotated[
        float | None, typer.Option(min=0.0, help="Part of the data of the others; 1 is all of it.", show_default=False)
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Draw the figures into this directory, as SVG.")] = None,
    debug: DebugOption = False,
) -> None:
    """Reproduce the examples and experiments of a paper with the code of the engine."""
    from strandline.apps.papers.output import PaperOptions
    from strandline.apps.papers.report import reproduce

    reproduce(name, PaperOptions(queries, scale, out), out_console)


def _words(error: Exception) -> str:
    """The error's message; an error of a JVM that is gone has none left."""
    try:
        return str(error)
    except Exception:
        return "no message"


def _engine(name: str) -> Literal["spark", "local"]:
    match name:
        case "spark" | "local":
            return name
    raise StrandlineError(f'unknown engine "{name}"', code="usage", hint="Engines are spark and local.")


def _connect(engine: str, allow: list[str] | None, **options: Any) -> Database:
    return strandline.connect(engine=_engine(engine), allow=Allow.parse(allow or ()), **options)


@contextmanager
def _stoppable() -> Iterator[None]:
    """A TERM signal ends a run as cleanly as Ctrl-C."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    main()
