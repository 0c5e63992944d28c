"""`strandline run --fresh`: remove what earlier runs of a script have left in its directories, and nothing else."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

from strandline.connectors.sinks.parquet import FORMER_DIRECTORY, OWNER, OWNER_FILE
from strandline.connectors.sinks.parquet_results import open_file
from strandline.core.durable import encode_name, read_document
from strandline.core.errors import CheckpointError, SinkError
from strandline.core.lease import refuse_busy
from strandline.database.script import checkpoint_root
from strandline.runtime.checkpoint.examine import read_outputs
from strandline.runtime.checkpoint.identity import read_identity, stored_graphs
from strandline.runtime.outputs import side_output
from strandline.sql import ast
from strandline.sql.parser.statements import parse


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or a directory that --fresh removes."""

    what: str
    path: Path


def find_leftovers(text: str, out: Path | None, checkpoint: Path | None, tables: Path | None) -> list[Leftover]:
    """What runs of a script have left: its checkpoints with their results and side outputs, and its tables.

    Refuses where a directory that the script would write to belongs to another checkpoint, and while another process
    writes to one of them.
    """
    statements = parse(text)
    names = {name.lower() for name in query_names(statements)}
    root = checkpoint_root(out, checkpoint)
    found: list[Leftover] = []
    for graph in stored_graphs(root) if root is not None else ():
        path, identity = graph.checkpoint, read_identity(graph.checkpoint)
        queries = list(dict.fromkeys([*identity["queries"], *(query.name for query in graph.queries)]))
        if names & {query.lower() for query in queries}:
            refuse_busy(path)
            owner = str(identity["id"])
            found.append(Leftover("checkpoint", path))
            found += _outputs(path, owner, queries)
            found += _former_results(out, owner, {leftover.path for leftover in found})
    if out is not None:
        known = {leftover.path for leftover in found}
        for name in query_names(statements):
            path = out / encode_name(name)
            if (path / OWNER_FILE).exists() and path not in known:
                raise _refuse_foreign(path, root)
    for table in (statement for statement in statements if isinstance(statement, ast.CreateTable | ast.CreateTableAs)):
        path = tables / encode_name(table.name.name.lower()) if tables is not None else Path()
        if tables is not None and (path / "table.json").exists():
            refuse_busy(path)
            found.append(Leftover("table", path))
    return found


def remove_leftovers(leftovers: Sequence[Leftover]) -> None:
    """Remove results and tables first: as long as the checkpoint is there, --fresh finds them again."""
    for leftover in sorted(leftovers, key=lambda leftover: leftover.what == "checkpoint"):
        if leftover.path.is_dir():
            shutil.rmtree(leftover.path)
        else:
            leftover.path.unlink(missing_ok=True)


def query_names(statements: Sequence[ast.Statement]) -> list[str]:
    """The names that a script gives to its queries, as `DeferredStatements` does."""
    named: list[str] = []
    unnamed = 0
    for statement in statements:
        match statement:
            case ast.CreateStreamAs(name) | ast.CreateSink(name) | ast.CreateMaterializedView(name):
                named.append(name.name)
            case _ if isinstance(statement, ast.Query):
                unnamed += 1
    taken = {name.lower() for name in named}
    free = (f"q{number}" for number in count(1) if f"q{number}" not in taken)
    return [*named, *islice(free, unnamed)]


def _outputs(checkpoint: Path, owner: str, queries: Sequence[str]) -> Iterator[Leftover]:
    """The files that a checkpoint has delivered, where they are its own."""
    outputs, sinks = read_outputs(checkpoint)
    for directory in outputs.results.values():
        if _owner_of(directory) == owner:
            yield Leftover("results", directory)
            if open_file(directory).exists():
                yield Leftover("open elements", open_file(directory))
    for query, kind in sinks.items():
        if query not in outputs.results and kind != "table":  # a table of the script is removed with the others
            raise SinkError(
                f"--fresh cannot remove the results of {query} from {kind}",
                code="results-exist",
                hint="Remove them there, and use another --checkpoint. Nothing was deleted.",
            )
    if outputs.side_outputs is None:
        return
    for kind in ("late", "rejected"):
        # A file is named after the first query of those that run together.
        parts = side_output(outputs.side_outputs, kind, "x").parent.glob(
            f"*/part-{encode_name(next(iter(queries)))}-*.parquet"
        )
        yield from (Leftover(f"{kind} rows", part) for part in sorted(parts))


def _former_results(out: Path | None, owner: str, known: set[Path]) -> Iterator[Leftover]:
    """Results of queries that a checkpoint has had before its script was updated."""
    if out is None:
        return
    for place in (f"*/{OWNER_FILE}", f"{FORMER_DIRECTORY}/*/*/{OWNER_FILE}"):
        for path in sorted(out.glob(place)):
            if path.parent not in known and _owner_of(path.parent) == owner:
                yield Leftover("former results", path.parent)
                if open_file(path.parent).exists():
                    yield Leftover("open elements", open_file(path.parent))


def _refuse_foreign(path: Path, root: Path | None) -> SinkError:
    """Results of a run with another --checkpoint."""
    return SinkError(
        f"the results in {path} belong to another checkpoint",
        code="results-exist",
        detail=f"They were not written with a checkpoint in {root}.",
        hint="Name the --checkpoint that they belong to, choose another --out, or remove them. Nothing was deleted.",
    )


def _owner_of(directory: Path) -> str | None:
    with contextlib.suppress(CheckpointError, OSError, KeyError):
        return str(read_document(directory / OWNER_FILE, OWNER)["owner"])
    return None
