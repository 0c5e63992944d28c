"""The documentation, executed.

Three kinds of text in the pages are compared with what the code says:

- fenced examples: ```python, ```shell and ```sql run (or timeline) blocks are run on the local engine, ```python spark
  in a process of its own on Spark, and a ```text block right below one is its output;
- ```console blocks: commands after `$`, each with what it prints below; ```sql file NAME is a file that they read;
- sections between `<!-- shown: name -->` and `<!-- end -->`, which are produced here: the steps of the architecture
  page, the tables of the language page;
- lists that must be whole: error codes, source options, commands, links.

`python tests/test_docs.py --update` writes the real output into the pages; review the difference before you commit it.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import polars as pl
import pytest
import typer

import strandline as sl
from fuzz_optimizer import IN_SPACE, STAGES
from plan_cases import read_rule_cases
from strandline.apps import cli
from strandline.apps.cli import app
from strandline.apps.console import SafeConsole
from strandline.apps.display import Clock
from strandline.apps.row_formats import show_elements
from strandline.apps.scenario import report
from strandline.apps.scenario.play import play
from strandline.apps.scenario.text import read_scenario
from strandline.apps.shell.commands import COMMANDS
from strandline.apps.shell.inputs import split
from strandline.apps.shell.session import Session
from strandline.apps.shell.startup import Startup
from strandline.connectors.registry import connectors
from strandline.connectors.sinks import Memory, known_sinks
from strandline.connectors.sinks.parquet_parts import open_result_writer
from strandline.connectors.sources.base import known_sources, open_source
from strandline.core.errors import StrandlineError
from strandline.core.temporal import FOREVER, UNITS, instant, show_instant
from strandline.core.types import BIGINT
from strandline.database.query import Query
from strandline.database.script import read_script
from strandline.database.script_changes import connected_groups
from strandline.functions.aggregates import AGGREGATES
from strandline.functions.datetimes import PARTS, TRUNC_UNITS
from strandline.functions.registry import ALIASES, FAMILIES
from strandline.functions.spellings import AGGREGATE_SPELLINGS, SCALAR_SPELLINGS
from strandline.logical.catalog import BaseStream
from strandline.logical.explain import show_plan
from strandline.logical.plan import Plan
from strandline.planner.alternatives import ALTERNATIVES
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.rules.prune_columns import prune_columns
from strandline.planner.stages import optimize
from strandline.runtime.exchange import DRIVER, Message
from strandline.runtime.ingest import ingest
from strandline.runtime.offsets import SourceOffset
from strandline.runtime.offsets import plan_splits as pieces_of
from strandline.runtime.result import VALID_FROM, VALID_UNTIL
from strandline.runtime.stage import FragmentRunner, StageOutput, run_stage
from strandline.runtime.state.segments import States
from strandline.runtime.state.store import StateStore
from strandline.runtime.watermark import SourceStatus
from strandline.sql import ast as syntax
from strandline.sql.binder.binder import bind_query
from strandline.sql.lexer import RESERVED, tokenize
from strandline.sql.parser.statements import parse
from strandline.sql.parser.types import SIMPLE_TYPES

ROOT = Path(__file__).resolve().parent.parent
os.environ["STRANDLINE_COSTS"] = "built-in"  # figures in plans are those of the constants that come along
SOURCE = ROOT / "src" / "strandline"
LANGUAGE = ROOT / "docs" / "language.md"
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])

# What a fence may say. `sql parse` must parse and is not run; `text` is output or a drawing; `sh` is for a terminal.
# `python entry`, `python add`, `text case` and `diff` change a copy of the tree in test_contributing.py.
KINDS = ("python", "python spark", "sql run", "sql timeline", "sql parse", "scenario", "shell", "text", "sh", "console",
         "python entry", "python add", "text case", "diff")  # fmt: skip
SQL_FILE = "sql file "
AS_PRINTED = ("tutorial.md", "howto.md")  # pages whose results are those that `strandline run` prints


# ---- pages -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Block:
    """A fenced block: what its fence says, and where its content lies in the page."""

    info: str
    start: int
    end: int
    line: int


def fenced(page: str) -> list[Block]:
    found = re.finditer(r"^```(\S[^\n]*)?\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return [Block(m[1] or "", m.start(2), m.end(2), page.count("\n", 0, m.start()) + 1) for m in found]


@dataclass(frozen=True)
class Piece:
    """A part of a page that the code can produce."""

    name: str
    start: int
    end: int
    shown: str
    produce: Callable[[], str]
    on_spark: bool = False


def pieces(path: Path) -> list[Piece]:
    """Everything on a page that is compared with real output, in order."""
    page = path.read_text()
    found: list[Piece] = []
    fences = fenced(page)
    files = {b.info.removeprefix(SQL_FILE): page[b.start : b.end] for b in fences if b.info.startswith(SQL_FILE)}
    for block, after in zip_longest(fences, fences[1:]):
        text = page[block.start : block.end]
        name = f"{path.relative_to(ROOT)}:{block.line}"
        if block.info == "console":
            found.append(Piece(name, block.start, block.end, text, functools.partial(run_commands, text, files)))
        if block.info not in RUNNERS:
            continue
        produce = functools.partial(RUNNERS[block.info], text)
        if block.info == "sql run" and path.name in AS_PRINTED:
            produce = functools.partial(run_sql, text, drawn=False, printed=True)
        if after is not None and after.info == "text" and not page[block.end + 3 : after.start - 8].strip():
            on_spark = block.info.endswith(" spark")
            found.append(Piece(name, after.start, after.end, page[after.start : after.end], produce, on_spark))
        else:
            assert not block.info.startswith("sql run"), f"{name}: its output belongs in a text block below"
            found.append(Piece(name, block.end, block.end, "", produce))
    for mark in re.finditer(r"<!-- shown: (\w+) -->\n(.*?)<!-- end -->", page, re.DOTALL):
        assert mark[1] in SHOWN, f"{path.name}: nothing is known to show as {mark[1]}"
        found.append(Piece(f"{path.relative_to(ROOT)}:{mark[1]}", mark.start(2), mark.end(2), mark[2], SHOWN[mark[1]]))
    return sorted(found, key=lambda piece: piece.start)


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """A directory with the example data, where examples may leave what they like."""
    with tempfile.TemporaryDirectory() as directory:
        shutil.copytree(ROOT / "docs" / "examples", Path(directory) / "docs" / "examples")
        with contextlib.chdir(directory):
            yield


# ---- running examples ------------------------------------------------------------------------------------------------


def run_python(text: str) -> str:
    """What a block prints. `sl.connect()` is Spark for a reader and the local engine here: the answers are the same."""
    printed = io.StringIO()
    local = functools.partial(sl.connect, engine="local")
    with workplace(), mock.patch.object(sl, "connect", local), contextlib.redirect_stdout(printed):
        exec(compile(text, "<example>", "exec"), {"__name__": "example"})
    return printed.getvalue()


def run_on_spark(text: str) -> str:
    """What a block prints that needs Spark; in a process of its own, because a process has one Spark."""
    with workplace():
        path = os.pathsep.join([str(SOURCE.parent), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_clock(text: str) -> str:
    """An output without the times of changes by the clock: `1 row inserted at …`."""
    days = "|".join(str((datetime.now(UTC) - timedelta(days=ago)).date()) for ago in (0, 1))
    return re.sub(rf"(rows? \w+ at )(?:{days}) [\d:.]+", r"\1…", text)


def run_sql(text: str, drawn: bool, printed: bool = False) -> str:
    """What the queries of a script answer, or the error that it ends with; `printed` as `strandline run` prints it."""
    with workplace(), sl.connect(engine="local", shards=2, batch_rows=2) as database:
        try:
            script = read_script(database, text)
            queries: list[Query] = []
            for group in connected_groups(script.queries):
                queries += database.start([replace(query, sink=Memory()) for query in group], None)
            for query in queries:
                query.await_end()
        except StrandlineError as error:
            return error.render() + "\n"
        streams = [stream for stream in database.catalog if isinstance(stream, BaseStream)]
        counted = all(s.time_column is not None and s.column_type(s.time_column) == BIGINT for s in streams)
        parts = list(script.outputs)
        if printed:
            parts += [show_printed(query, len(queries) > 1) for query in queries]
            notices = list(dict.fromkeys(str(notice) for query in queries for notice in query.notices()))
            return without_clock("\n\n".join([*parts, *(["\n".join(notices)] if notices else [])]) + "\n")
        parts += [draw(queries)] if drawn else [show_answer(q, counted, len(queries) > 1) for q in queries]
        parts += [aside for stream in streams if (aside := show_aside(queries, stream.name))]
    return without_clock("\n\n".join(parts) + "\n")


def elements(query: Query) -> list[tuple[tuple[str, ...], int, int]]:
    rows = query.results().to_pylist()
    found = []
    for row in rows:
        start, end = row.pop("valid_from"), row.pop("valid_until")
        payload = tuple(show_value(value) for value in row.values())
        found.append((payload, instant(start), FOREVER if end is None else instant(end)))
    return sorted(found, key=lambda element: (element[1], element[0], element[2]))


def show_value(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "NULL", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return f"[{', '.join(map(show_value, value))}]"
    return str(value)


def show_answer(query: Query, counted: bool, named: bool) -> str:
    """The elements of an answer as a table; instants as plain numbers where the streams count them so."""
    found = elements(query)
    finite = [t for _, start, end in found for t in (start, end) if t < FOREVER]
    one_day = len({show_instant(t)[:10] for t in finite}) == 1

    def at(t: int) -> str:
        if t == FOREVER:
            return "…"
        return str(t) if counted else show_instant(t)[11 if one_day else 0 :]

    rows = [[c.name for c in query.columns] + ["valid"]]
    rows += [[*payload, f"[{at(start)}, {at(end)})"] for payload, start, end in found]
    return (f"{query.name}:\n" if named else "") + columns_of(rows)


def show_printed(query: Query, named: bool) -> str:
    """The rows of an answer as the command line prints them."""
    results = query.results("polars")
    plain = [name for name, kind in results.schema.items() if not isinstance(kind, pl.List)]
    first = [VALID_FROM, *(name for name in plain if name not in (VALID_FROM, VALID_UNTIL)), VALID_UNTIL]
    rows = show_elements(results.sort(first, nulls_last=True).to_arrow(), Clock())
    lines = [line.plain for line in rows.lines(None, expand=False)[0]]
    return "\n".join([f"{query.name}:"] * named + lines)


def columns_of(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def show_aside(queries: list[Query], stream: str) -> str:
    """The late and the malformed rows of a stream."""
    lines = []
    for query in [query for query in queries if stream in query.heartbeats()][:1]:
        late = [", ".join(map(show_value, row.values())) for row in query.late(stream).to_pylist()]
        lines += [f"late in {stream}: ({row})" for row in late]
        lines += [f"rejected in {stream}: {row['reason']}" for row in query.rejected(stream).to_pylist()]
    return "\n".join(lines)


def draw(queries: list[Query]) -> str:
    """Answers as time lines, one under the other on one axis; `>` is an element without an end."""
    answers = [(query.name, elements(query)) for query in queries]
    finite = [t for _, found in answers for _, start, end in found for t in (start, end) if t < FOREVER]
    low, high = min(0, min(finite) // 5 * 5), max(finite) + 3
    labels = [name for name, _ in answers] + [",".join(payload) for _, found in answers for payload, _, _ in found]
    width = max(map(len, labels)) + 2
    axis = "".join(str(t).ljust(5) for t in range(low, high, 5)).rstrip()
    lines = []
    for name, found in answers:
        lines.append((name.ljust(width) + axis).rstrip())
        for payload, start, end in found:
            bar = "[" + "=" * (min(end, high) - start - 1) + (")" if end < FOREVER else ">")
            lines.append(",".join(payload).ljust(width) + " " * (start - low) + bar)
    return "\n".join(lines)


def play_scenario(text: str) -> str:
    """What `strandline test` says of a scenario, without the name of its file."""
    scenario = read_scenario(text)
    with sl.connect(engine="local") as database:
        return report.render("", scenario, play(scenario, database)).removeprefix(": ") + "\n"


def check_parses(text: str) -> str:
    assert parse(text), "a script has statements"
    return ""


def run_shell(text: str) -> str:
    """What the shell prints for these inputs where its output is not a terminal."""
    printed = io.StringIO()
    with workplace(), sl.connect(engine="local") as database:
        startup = Startup(engine="local")
        startup.ready.set()
        session = Session(database, startup)
        session.console = SafeConsole(file=printed, width=100, highlight=False)
        for each in split(text):
            session.run(each)
    return without_clock(printed.getvalue())


def run_commands(text: str, files: dict[str, str]) -> str:
    """The commands of a block, each with what it prints, on standard output and on standard error. A command that takes
    an engine is Spark for a reader and the local engine here: the answers are the same."""
    printed = ""
    with workplace():
        for name, content in files.items():
            assert parse(content), "a script has statements"
            Path(name).write_text(content)
        for line in text.splitlines():
            if line.startswith("$ "):
                printed += f"{line}\n{run_command(shlex.split(line.removeprefix('$ '), comments=True))}"
    return printed


def run_command(words: list[str]) -> str:
    """What a command prints, without times by the clock."""
    assert words[0] == "strandline", f"{words[0]} is not ours"
    known = commands().get(words[1])
    if known is not None and any(option.name == "engine" for option in known.params) and "--engine" not in words:
        words = [*words, "--engine", "local"]
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        with contextlib.suppress(SystemExit):
            cli.main()
        out.seek(0)
        here = f"{os.getcwd()}/"
        return re.sub(r"done in [\d.]+ s", "done in … s", out.read()).replace(here, "")


RUNNERS: dict[str, Callable[[str], str]] = {
    "shell": run_shell,
    "python": run_python,
    "python spark": run_on_spark,
    "sql run": functools.partial(run_sql, drawn=False),
    "sql timeline": functools.partial(run_sql, drawn=True),
    "sql parse": check_parses,
    "scenario": play_scenario,
}


# ---- the walk of docs/architecture.md --------------------------------------------------------------------------------


@dataclass(frozen=True)
class BatchSeen:
    """What one batch did: messages of stage 0 by shard, states after stage 1 by shard, elements of the result."""

    sent: dict[int, list[Message]]
    states: dict[int, States]
    answer: list[dict[str, Any]]


@dataclass(frozen=True)
class Walk:
    """The query of docs/examples/trades.sql after every phase, on two shards, one file per batch."""

    text: str
    statement: syntax.Select
    bound: Plan
    better: Plan
    pipeline: Pipeline
    batches: list[BatchSeen]


@functools.cache
def walk() -> Walk:
    with workplace(), sl.connect(engine="local") as database:
        text = Path("docs/examples/trades.sql").read_text()
        statements = parse(text)
        database.execute(statements[0])
        create = statements[1]
        assert isinstance(create, syntax.CreateStreamAs) and isinstance(create.query, syntax.Select)
        bound = bind_query(create.query, database.catalog)
        better = optimize(bound)
        streams = [stream for stream in database.catalog if isinstance(stream, BaseStream)]
        pipeline = lower("volume", better, streams, 2)
        return Walk(text, create.query, bound, better, pipeline, run_batches(pipeline))


def run_batches(pipeline: Pipeline) -> list[BatchSeen]:
    """What `LocalRun` does, with a look at everything on the way."""
    source = open_source(pipeline.streams[0])
    statuses: dict[str, SourceStatus] = {}
    states: dict[int, States] = {}
    seen: list[BatchSeen] = []
    position, ended = 0, False
    while not ended:
        batch = len(seen)
        end, ended = source.advance(position, 1)
        box = StageOutput(pipeline.shards, 0, open_result_writer(pipeline, {}, batch, "0-0"))
        [piece] = pieces_of({"trades": SourceOffset(position)}, {"trades": SourceOffset(end, ended=ended)})
        statuses["trades"] = ingest(pipeline, source, piece, dict(statuses), box)
        position = end
        answer: list[dict[str, Any]] = []
        for shard in range(pipeline.shards):
            out = StageOutput(pipeline.shards, shard, open_result_writer(pipeline, {}, batch, f"1-{shard}"))
            states[shard] = run_stage(pipeline, 1, shard, box.by_shard[shard], states.get(shard, {}), out)
            out.close()
            answer += [row for m in out.for_driver if m.table is not None for row in m.table.to_pylist()]
        seen.append(BatchSeen(box.by_shard | {DRIVER: box.for_driver}, dict(states), answer))
    return seen


def as_text(content: str) -> str:
    return f"```text\n{content.rstrip()}\n```\n"


def show_tokens() -> str:
    select = walk().statement
    tokens = tokenize(select.text)[:9]
    rows = [[t.kind.name, t.value, f"{t.span.start}–{t.span.end}"] for t in tokens]
    return as_text(columns_of(rows) + "\n…")


def show_syntax() -> str:
    return as_text("\n".join(tree_lines(walk().statement, "", 0)))


def tree_lines(node: object, label: str, depth: int) -> list[str]:
    """A syntax tree: a node and its plain values on one line, its parts below."""
    pad = "  " * depth + (f"{label}: " if label else "")
    if isinstance(node, tuple):
        return [line for part in node for line in tree_lines(part, label, depth)]
    if isinstance(node, syntax.Identifier):
        return [pad + node.name]
    if not isinstance(node, syntax.Node):
        return [] if node in (None, False) else [pad + str(node)]
    plain, below = [], []
    for name in (n for cls in type(node).__mro__ for n in getattr(cls, "__slots__", ()) if n != "span"):
        value = getattr(node, name)
        if name == "offset" and not value:
            continue
        if isinstance(value, str | int) and not isinstance(value, bool):
            plain.append(str(value))
        else:
            below += tree_lines(value, name, depth + 1)
    return [pad + " ".join([type(node).__name__, *plain]), *below]


def show_messages() -> str:
    lines = []
    for shard, messages in sorted(walk().batches[0].sent.items()):
        lines.append("for the driver" if shard == DRIVER else f"for shard {shard}")
        for message in messages:
            lines.append(f"  {message.kind} {message.name}")
            lines += [f"    {line}" for line in message_lines(message)]
    return as_text("\n".join(lines))


def message_lines(message: Message) -> list[str]:
    if message.table is None:
        status = SourceStatus.from_json(message.facts)
        return [
            f"watermark {show_instant(status.watermark)}, {show_instant(status.low)} to {show_instant(status.high)}",
            f"{status.rows} rows, {status.late} late, {status.rejected} rejected",
        ]
    rows = [message.table.column_names]
    for row in message.table.to_pylist():
        rows.append([show_instant(v) if k in ("@from", "@until") else show_value(v) for k, v in row.items()])
    return columns_of(rows).splitlines()


def show_state() -> str:
    lines = []
    for shard, states in sorted(walk().batches[0].states.items()):
        lines.append(f"shard {shard}")
        for fragment in walk().pipeline.at(1):
            operators = FragmentRunner(fragment.root).operators
            for operator, state in zip(operators, (states[name] for name in fragment.operators), strict=True):
                if state.numbers or any(state.segments.values()):
                    lines.append(f"  {fragment.id} {type(operator).__name__}")
                lines += [f"    {name} = {show_instant(value)}" for name, value in state.numbers.items()]
                for name, segments in state.segments.items():
                    for segment in segments:
                        facts = {k: v if k == "consumed" else show_instant(v) for k, v in segment.facts.items()}
                        told = "".join(f", {key} {value}" for key, value in facts.items())
                        lines.append(f"    {name}: a segment of {segment.rows} rows{told}")
    return as_text("\n".join(lines))


def show_files() -> str:
    """The state of the first batches on disk; checksums and sizes depend on the version of Arrow and are left out."""
    with tempfile.TemporaryDirectory() as directory:
        for batch, seen in enumerate(walk().batches):
            for shard, states in seen.states.items():
                StateStore(Path(directory) / "state", 1, shard).write(batch, states)
        files = sorted(path.relative_to(directory).as_posix() for path in Path(directory).rglob("*") if path.is_file())
    return as_text("\n".join(files))


def show_batches() -> str:
    lines = []
    for number, seen in enumerate(walk().batches):
        lines.append(f"after batch {number}")
        rows = []
        for row in sorted(seen.answer, key=lambda row: (row["valid_from"], row["sym"])):
            start, end = (show_instant(instant(row.pop(name)))[11:] for name in ("valid_from", "valid_until"))
            rows.append([*map(show_value, row.values()), f"[{start}, {end})"])
        lines += [f"  {line}" for line in columns_of(rows).splitlines()]
    return as_text("\n".join(lines))


def show_result() -> str:
    """The same through the front door: elements that touch are joined."""
    return as_text(run_sql(walk().text, drawn=False))


def show_house() -> str:
    """Every module with the first sentence of its docstring."""
    lines = ["src/strandline/"]
    for folder, names in house():
        depth = 1 + folder.count("/") if folder else 0
        if folder:
            lines.append("  " * depth + folder.split("/")[-1] + "/")
        rows = [[name, purpose] for name, purpose in names]
        if rows:
            width = max(len(name) for name, _ in rows)
            lines += ["  " * (depth + 1) + f"{name.ljust(width)}  {purpose}".rstrip() for name, purpose in rows]
    return as_text("\n".join(lines))


def house() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    folders = [SOURCE, *sorted(p for p in SOURCE.rglob("*") if p.is_dir() and any(p.glob("*.py")))]
    for folder in folders:
        names = []
        for path in sorted(folder.glob("*.py")):
            docstring = ast.get_docstring(ast.parse(path.read_text()))
            if docstring:
                names.append((path.name, docstring.splitlines()[0].rstrip(".")))
        yield folder.relative_to(SOURCE).as_posix() if folder != SOURCE else "", names


# ---- the tables of docs/language.md ----------------------------------------------------------------------------------


def markdown_table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), ["---"] * len(list(head)), *(list(row) for row in rows)]
    return (
        "\n" + "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines) + "\n"
    )


def show_functions() -> str:
    other: dict[str, list[str]] = {}
    for alias, name in ALIASES.items():
        other.setdefault(name, []).append(f"`{alias}`")
    tables = []
    for family, functions in FAMILIES.items():
        rows = []
        for function in functions:
            also = f" Also {', '.join(other[function.name])}." if function.name in other else ""
            rows.append((f"`{function.usage}`", function.doc + also))
        tables.append(f"### {family}\n\n{markdown_table(('written', 'meaning'), rows)}")
    return "\n\n".join(tables)


def show_aggregates() -> str:
    return markdown_table(("written", "meaning"), ((f"`{a.usage}`", a.doc) for a in AGGREGATES.values()))


def show_spellings() -> str:
    rows = []
    for spelling in (*AGGREGATE_SPELLINGS, *SCALAR_SPELLINGS):
        also = "".join(f", `{alias}`" for alias in spelling.aliases)
        rows.append((f"`{spelling.written}`{also}", f"`{spelling.means}`"))
    return markdown_table(("written", "means"), rows)


def show_reserved() -> str:
    return as_text("\n".join(wrapped(sorted(RESERVED), 100)))


def wrapped(words: list[str], width: int) -> list[str]:
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def commands() -> dict[str, Any]:
    return dict(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


def show_commands() -> str:
    parts = []
    for name, command in commands().items():
        arguments = [p for p in command.params if p.param_type_name == "argument"]
        options = [p for p in command.params if p.param_type_name == "option" and p.name != "help"]
        usage = " ".join([f"strandline {name}", *(p.name.upper() for p in arguments), "[OPTIONS]"])
        rows = [(f"`{p.name.upper()}`", "", p.help or "") for p in arguments]
        for option in options:
            default = (
                "required" if option.required else "" if option.default in (None, False) else f"`{option.default}`"
            )
            rows.append((f"`{option.opts[0]}`", default, option.help or ""))
        parts.append(f"### `{usage}`\n\n{command.help}\n" + markdown_table(("argument", "default", "meaning"), rows))
    return "\n" + "\n".join(part.rstrip("\n") + "\n" for part in parts) + "\n"


def show_dot_commands() -> str:
    return markdown_table(("command", "what it does"), ((f"`{v.usage}`", v.summary) for v in COMMANDS.values()))


def show_connectors() -> str:
    rows = []
    for each in connectors():
        promises = ["yes" if getattr(each.traits, name) else "–" for name in ("replayable", "ordered", "idempotent")]
        extra = f"`strandline[{each.needs.extra}]`" if each.needs is not None else ""
        name = f"[`{each.name}`](language.md#{each.name})" if each.direction == "source" else f"`{each.name}`"
        rows.append((name, each.direction, *promises, each.traits.note, extra))
    return "\n" + markdown_table(("name", "", "replayable", "ordered", "idempotent", "how", "needs"), rows) + "\n"


# ---- the tables of docs/optimizer.md ---------------------------------------------------------------------------------


def show_rules_of_stages() -> str:
    """The rules that always pay, in the order of their stages; those of the search are in the other table."""
    listed = [rule for stage in STAGES for rule in stage.rules if rule.__name__ not in IN_SPACE]
    return rule_table((*dict.fromkeys(listed), prune_columns))


def rule_table(rules: Iterable[Callable[..., object]]) -> str:
    """Rules with the law of their docstring, and the reasons of the cases in which they do not fire."""
    reasons: dict[str, dict[str, None]] = {}
    for case in read_rule_cases():
        if case.refusal is not None:
            reasons.setdefault(case.file.stem, {})[case.refusal] = None
    rows = ((f"`{r.__name__}`", state_law(r), "; ".join(reasons.get(r.__name__, ()))) for r in rules)
    return markdown_table(("rule", "law", "does not apply"), rows)


def state_law(rule: Callable[..., object]) -> str:
    """The first paragraph of a docstring, in one line."""
    law, _, _ = (inspect.getdoc(rule) or "").partition("\n\n")
    return " ".join(law.split()).removesuffix(".")


SHOWN: dict[str, Callable[[], str]] = {
    "rules_of_stages": show_rules_of_stages,
    "rules_of_the_search": lambda: rule_table(ALTERNATIVES),
    "dot_commands": show_dot_commands,
    "tokens": show_tokens,
    "syntax": show_syntax,
    "bound": lambda: as_text(show_plan(walk().bound)),
    "optimised": lambda: as_text(show_plan(walk().better)),
    "physical": lambda: as_text(show_pipeline(walk().pipeline)),
    "messages": show_messages,
    "state": show_state,
    "files": show_files,
    "batches": show_batches,
    "result": show_result,
    "house": show_house,
    "functions": show_functions,
    "aggregates": show_aggregates,
    "spellings": show_spellings,
    "reserved": show_reserved,
    "commands": show_commands,
    "connectors": show_connectors,
}


# ---- tests -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "piece",
    [
        pytest.param(piece, id=piece.name, marks=[pytest.mark.spark] if piece.on_spark else [])
        for path in PAGES
        for piece in pieces(path)
    ],
)
def test_the_page_says_what_the_code_does(piece: Piece) -> None:
    actual = piece.produce()
    if actual != piece.shown:
        lines = difflib.unified_diff(piece.shown.splitlines(), actual.splitlines(), "page", "code", lineterm="")
        pytest.fail(f"{piece.name} differs; python tests/test_docs.py --update rewrites it\n" + "\n".join(lines))


def test_everything_that_can_be_shown_is_shown_once() -> None:
    marks = [mark for path in PAGES for mark in re.findall(r"<!-- shown: (\w+) -->", path.read_text())]
    assert sorted(marks) == sorted(SHOWN)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_fence_says_what_it_is(path: Path) -> None:
    page = path.read_text()
    assert page.count("```") == 2 * len(fenced(page)), "every fence is closed"
    assert {block.info for block in fenced(page) if not block.info.startswith(SQL_FILE)} <= set(KINDS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    page = re.sub(r"^```.*?^```$", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        if target.startswith(("http://", "https://")):
            continue
        file, _, anchor = target.partition("#")
        there = (path.parent / file).resolve() if file else path
        assert there.exists(), f"{target} does not exist"
        if anchor:
            assert anchor in anchors(there.read_text()), f"{target}: there is no such heading"


def anchors(page: str) -> set[str]:
    """The names that headings get: lower case, blanks to hyphens, other signs dropped."""
    heads = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(heading)}$", page, re.MULTILINE)
    assert found, f"there is no section {heading}"
    rest = page[found.end() :]
    after = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: after.start()] if after else rest


def first_cells(text: str) -> list[str]:
    """The code in the first column of the tables of a section."""
    return re.findall(r"^\| `([^`]+)`", text, re.MULTILINE)


def codes_in(source: str) -> set[str]:
    """The ids of the errors that a module can raise: `code=…`, `error(message, code, …)`, and texts `error[code]`."""
    found: set[str] = set(re.findall(r"error\[([a-z][a-z-]*)\]", source))

    def add(value: ast.expr | None) -> None:
        match value:
            case ast.Constant(str(code)):
                found.add(code)
            case ast.IfExp(_, one, two):
                add(one)
                add(two)

    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(ast.Attribute(_, "error") | ast.Name("_error"), [_, code, *_], _):
                add(code)
            case ast.Assign([ast.Name("code")], value):
                add(value)
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "code":
                    add(keyword.value)
    return {code for code in found if re.fullmatch(r"[a-z]+(-[a-z]+)*", code)}


def test_codes_are_found_however_they_are_written() -> None:
    source = """
raise E("m", code="one-way")
raise self.error("m", "two-ways", span)
raise _error("m", "three", span, None)
code = "four" if known else "five"
print(f"error[six]: {text}")
arguments.error("no code here")
"""
    assert codes_in(source) == {"one-way", "two-ways", "three", "four", "five", "six"}


def test_every_error_code_has_its_row() -> None:
    raised = set().union(*(codes_in(path.read_text()) for path in SOURCE.rglob("*.py")))
    documented = first_cells(section((ROOT / "docs" / "errors.md").read_text(), "Codes"))
    assert len(documented) == len(set(documented)), "each code is listed once"
    assert raised - set(documented) == set(), "not documented"
    assert set(documented) - raised == set(), "documented, but nothing raises it"


def notices_in(source: str) -> set[str]:
    """The codes of the notices that a module produces: `Notice(code, …)`."""
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    named = (call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Notice")
    codes = (call.args[0] for call in named)
    return {str(code.value) for code in codes if isinstance(code, ast.Constant)}


def test_every_notice_has_its_row() -> None:
    produced = [code for path in SOURCE.rglob("*.py") for code in notices_in(path.read_text())]
    documented = first_cells(section((ROOT / "docs" / "errors.md").read_text(), "Notices"))
    assert sorted(documented) == sorted(produced), "each is produced in one module, and listed once"


def broken_tables(page: str) -> list[str]:
    """The rows of tables that no header stands above, as after an empty line in a table: they are shown as text."""
    broken = []
    in_code, in_table = False, False
    lines = page.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        in_code ^= line.startswith("```")
        is_row = line.startswith("|") and not in_code
        if is_row and not in_table and not re.fullmatch(r"\|( *:?-+:? *\|)+", following):
            broken.append(line)
        in_table = is_row and (in_table or line not in broken)
    return broken


def test_a_row_after_an_empty_line_is_no_table() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert broken_tables(table) == []
    assert broken_tables(table + "\n| 3 | 4 |\n") == ["| 3 | 4 |"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_no_table_is_broken(page: Path) -> None:
    assert broken_tables(page.read_text()) == []


def connector_options(connector: type) -> dict[str, object]:
    """The options of a source or sink and their defaults, read from its code and from that of its base classes."""
    options: dict[str, object] = {}
    modules = {base.__module__ for base in connector.__mro__ if base.__module__.startswith("strandline.")}
    for module in sorted(modules):
        for node in ast.walk(ast.parse(inspect.getsource(sys.modules[module]))):
            match node:
                case ast.Call(ast.Attribute(_, "option"), [ast.Constant(str(name)), _, ast.Constant(default)], _):
                    options[name] = default
    return options


def check_options(page: str, name: str, options: dict[str, object]) -> None:
    """The section of a connector has a row for each of its options, with its default."""
    rows = dict(re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", section(page, f"`{name}`"), re.MULTILINE))
    assert set(rows) == set(options), f"options of {name}()"
    for option, default in options.items():
        written = "NULL" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
        assert rows[option].strip().strip("'") == written, f"default of {option} of {name}()"


def test_every_source_option_has_its_row() -> None:
    assert {"token", "path", "max_backlog"} <= set(connector_options(known_sources()["http"]))
    for name, source in known_sources().items():
        check_options(LANGUAGE.read_text(), name, connector_options(source))


def test_every_sink_option_has_its_row() -> None:
    assert {"password", "shows"} <= set(connector_options(known_sinks()["postgresql"]))
    for name, sink in known_sinks().items():
        check_options((ROOT / "docs" / "connectors.md").read_text(), name, connector_options(sink))


def test_types_and_units_have_their_place() -> None:
    page = LANGUAGE.read_text()
    types = section(page, "Types")
    for name in (*SIMPLE_TYPES, "DECIMAL", "NUMERIC"):
        assert f"`{name}" in types, name
    for unit in UNITS:
        assert unit in section(page, "Durations"), unit
    for unit in (*TRUNC_UNITS, *PARTS):
        assert f"`{unit}`" in section(page, "Functions"), unit


def test_every_node_of_the_algebra_has_its_law() -> None:
    page = (ROOT / "docs" / "semantics.md").read_text()
    nodes = [node.__name__ for node in get_args(Plan)]
    table, *_ = section(page, "Operators").split("\n### ")  # those of operators have tables of their own
    assert first_cells(table) == nodes, "in the order of logical/plan.py"


def test_commands_of_the_pages_exist() -> None:
    known = commands()
    for path in PAGES:
        page = path.read_text()
        for block in fenced(page):
            for line in page[block.start : block.end].splitlines() if block.info in ("sh", "console") else ():
                words = line.split("#")[0].removeprefix("$ ").removeprefix(".venv/bin/").split()
                if words[:1] == ["strandline"]:
                    assert words[1] in known, f"{path.name}: {line}"
                    options = {opt for p in known[words[1]].params for opt in p.opts} | {"--help"}
                    assert {w.split("=")[0] for w in words[2:] if w.startswith("--")} <= options, f"{path.name}: {line}"
                if words[:1] == ["make"]:
                    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
                    assert words[1] in targets, f"{path.name}: {line}"


def test_the_script_of_the_readme_runs() -> None:
    with workplace():
        command = typer.main.get_command(app)
        with contextlib.redirect_stdout(io.StringIO()):
            arguments = ["run", "docs/examples/trades.sql", "--out", "results", "--engine", "local"]
            command(arguments, standalone_mode=False)
        assert sorted(p.name for p in Path("results").iterdir()) == [".strandline", "_late", "_rejected", "volume"]
        assert list(Path("results/volume").glob("*.parquet"))


def test_decisions_are_numbered_and_say_what_was_rejected() -> None:
    paths = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in paths] == [f"{n:04}" for n in range(1, len(paths) + 1)]
    for path in paths:
        heads = re.findall(r"^## (.*)$", path.read_text(), re.MULTILINE)
        assert heads[:3] == ["Problem", "Choice", "Rejected"], path.name


def test_what_decisions_name_exists() -> None:
    for path in sorted((ROOT / "docs" / "decisions").glob("*.md")):
        text = path.read_text()
        _, found, rest = text.partition("\n## What shows it\n")
        named = re.findall(r"`(?:python )?((?:tests|src)/[\w/.]+)", rest)
        assert not found or len(named) > 10
        assert [name for name in named if not (ROOT / name).exists()] == [], path.name


def update() -> None:
    """Write the real output into the pages."""
    for path in PAGES:
        page = path.read_text()
        changed = page
        for piece in reversed(pieces(path)):
            changed = changed[: piece.start] + piece.produce() + changed[piece.end :]
        if changed != page:
            path.write_text(changed)
            print(f"{path.relative_to(ROOT)} updated")


if __name__ == "__main__":
    assert sys.argv[1:] == ["--update"], "python tests/test_docs.py --update"
    update()
