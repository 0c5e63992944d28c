"""The command line: thin, it calls the engine and prints."""

from __future__ import annotations

import json
import logging
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

import strandline
from strandline.apps.connection import Stopped, connect_engine, parse_engine, stoppable
from strandline.apps.console import err_console, out_console, read_file, say, status
from strandline.core.errors import StrandlineError
from strandline.core.faults import explain_fault
from strandline.core.log import start_log, write_log
from strandline.core.security.allow import Allow

app = typer.Typer(
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

EngineOption = Annotated[str, typer.Option(help="spark, or local: one process, no Spark, no restart.")]
MasterOption = Annotated[str | None, typer.Option(help="Spark master URL; by default this machine's cores.")]
ShardsOption = Annotated[
    int | None,
    typer.Option("--shards", "--buckets", min=1, help="Number of state shards; default: the cores, locally 1."),
]
BatchRowsOption = Annotated[int, typer.Option(min=1, help="Approximate rows of a stream per batch.")]
BatchSecondsOption = Annotated[
    float | None,
    typer.Option(
        help="About how many seconds a batch takes at most: in a burst, large windows of joins that queries share are "
        "late, and small ones are not. By default, nothing is put off."
    ),
]
StrategyOption = Annotated[
    str | None,
    typer.Option(help="With --batch-seconds, let other operators put off input: fifo, round-robin or chain."),
]
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
    "enrich, over, shared-join, strategies, or all."
)


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


@app.callback(help=strandline.__doc__)
def begin(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        say(f"strandline {strandline.__version__}")
    elif context.invoked_subcommand is None:
        say(context.get_help())
    if version or context.invoked_subcommand is None:
        raise typer.Exit


@app.command()
def run(
    script: Annotated[Path, typer.Argument(help="A file of SQL statements.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Directory for the results: one Parquet data set per query. Without it, rows are printed."),
    ] = None,
    engine: EngineOption = "spark",
    master: MasterOption = None,
    checkpoint: Annotated[Path | None, typer.Option(help="Directory for checkpoints; default: inside --out.")] = None,
    form: Annotated[str, typer.Option("--format", help="Of printed rows: table, csv or json.")] = "table",
    limit: Annotated[
        int | None, typer.Option(min=0, help="Printed rows of each query, 0 for all; default: 1,000 in a table.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start over: delete the checkpoint and the results of this script first.")
    ] = False,
    update: Annotated[
        bool,
        typer.Option("--update", help="Where the script has changed: drop, add and replace queries, keep the rest."),
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Run again whenever the script changes; with the same plan, resume.")
    ] = False,
    shards: ShardsOption = None,
    batch_rows: BatchRowsOption = 1_000_000,
    batch_seconds: BatchSecondsOption = None,
    strategy: StrategyOption = None,
    take_over: TakeOverOption = False,
    allow: AllowOption = None,
    log: LogOption = None,
    log_level: LogLevelOption = None,
    debug: DebugOption = False,
) -> None:
    """Run all queries of a script until the sources end or Ctrl-C. On Spark with --out, run it again to resume."""
    start_log(log, log_level)
    options: dict[str, Any] = {"master": master, "shards": shards, "batch_rows": batch_rows, "take_over": take_over}
    options |= {"batch_seconds": batch_seconds, "strategy": strategy}
    if engine == "spark" and script.expanduser().is_file():
        from strandline.engines.spark.launcher.early import begin_early

        begin_early(master)  # it comes up while this process loads its modules and reads the script
    from strandline.apps.run_script import ScriptRun, run_script
    from strandline.apps.watch import watch_script

    request = ScriptRun(script, out, checkpoint, engine, allow, options, form, limit, fresh, update)
    watch_script(request) if watch else run_script(request)


@app.command()
def results(
    directory: Annotated[Path, typer.Argument(help="DIR/query, the results of a query, or the --out of its run.")],
    query: Annotated[str | None, typer.Argument(help="The query, if the directory is that of a run.")] = None,
    at: Annotated[str | None, typer.Option(help="The rows that are valid at an instant, or `last` one.")] = None,
    changes: Annotated[bool, typer.Option("--changes", help="The changes of the result, with their times.")] = False,
    form: Annotated[
        str | None, typer.Option("--format", help="table, csv, json (lines) or parquet; default: as --out says.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=0, help="Rows, 0 for all; default: 1,000 in a table, else all.")
    ] = None,
    expand: Annotated[bool, typer.Option("--expand", "-x", help="A line for each column of a row.")] = False,
    debug: DebugOption = False,
) -> None:
    """Read the results of a run, while it runs or afterwards: every element once."""
    from strandline.apps.read_results import ResultsRequest, print_results

    print_results(ResultsRequest(directory, query, at, changes, form, out, limit, expand))


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
    with stoppable():
        raise typer.Exit(run_shell(Startup(parse_engine(engine), allow=Allow.parse(allow or ()), **options), init))


@app.command()
def explain(
    script: Annotated[Path, typer.Argument(help="A file of SQL statements, or - for standard input.")],
    shards: Annotated[int, typer.Option("--shards", "--buckets", min=1, help="Number of state shards.")] = 2,
    allow: AllowOption = None,
    debug: DebugOption = False,
) -> None:
    """Show the plans of all queries of a script without running them."""
    from strandline.database.script import read_script

    with connect_engine("local", allow, shards=shards) as database:
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
    with stoppable(), connect_engine(engine, allow, **options) as ours, open_oracle(database, dsn) as theirs:
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
        with connect_engine(engine, allow, **options) as database, status(f"playing {path}"):
            database.catalog.notices.show = None  # late rows and empty results are what a scenario may be about
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
def warmup(debug: DebugOption = False) -> None:
    """Prepare faster starts: Spark's class archive, and the machine code of operators. Once per installation."""
    from strandline.apps.warmup import prepare

    with status("compiling") as show_phase:
        lines = prepare(show_phase)
    say("\n".join(lines))


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
    with stoppable():
        show(out_console, seconds, parse_engine(engine))


@app.command()
def inspect(
    files: Annotated[list[str], typer.Argument(help="Files, directories or patterns: Parquet, CSV, JSON lines.")],
    table: Annotated[bool, typer.Option("--table", help="Declare a table instead of a stream.")] = False,
    name: Annotated[str | None, typer.Option(help="Name of the stream; default: that of the file.")] = None,
    debug: DebugOption = False,
) -> None:
    """Read files, and write the statement that declares them: columns, time, and the WITHIN that their rows need."""
    from strandline.apps.inspect_files import inspect_files

    say(inspect_files(files, table, name))


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
        typer.Option(
            help="Only this query of nexmark, costs or orders, or part of enrich or shared-join; may be repeated."
        ),
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Runs of each engine; the best counts.")] = 2,
    held_out: Annotated[
        bool, typer.Option("--held-out", help="Of costs: ten shapes that the model was not improved with.")
    ] = False,
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Of enrich and shared-join: the length of a run.")
    ] = None,
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
    name: Annotated[str, typer.Argument(help="ayad-naughton, golab-ozsu, hammad or kraemer-pna.")],
    queries: Annotated[int, typer.Option(min=1, help="Number of random queries of ayad-naughton.")] = 1000,
    scale: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Part of the data of golab-ozsu and kraemer-pna; 1 is all of it.", show_default=False
        ),
    ] = None,
    utilisation: Annotated[
        float, typer.Option(min=0.01, max=0.99, help="Share of time in which hammad's server works.")
    ] = 0.8,
    tuples: Annotated[int, typer.Option(min=100, help="New tuples of each run of hammad.")] = 100_000,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of hammad with other random numbers.")] = 5,
    out: Annotated[Path | None, typer.Option(help="Draw the figures into this directory, as SVG.")] = None,
    debug: DebugOption = False,
) -> None:
    """Reproduce the examples and experiments of a paper with the code of the engine."""
    from strandline.apps.papers.output import PaperOptions
    from strandline.apps.papers.report import reproduce

    reproduce(name, PaperOptions(queries, scale, out, utilisation, tuples, seeds), out_console)


def _words(error: Exception) -> str:
    """The error's message; an error of a JVM that is gone has none left."""
    try:
        return str(error)
    except Exception:
        return "no message"


if __name__ == "__main__":
    main()
