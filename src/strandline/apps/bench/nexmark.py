"""NEXMark queries against plain Spark, where Spark can express them: `strandline bench nexmark`.

Both sides read the same Parquet files, which our generator writes first, and write Parquet files. The queries of ours
are those of `examples/nexmark/`, with a file in the place of the generator.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from rich.console import Console

import strandline
from strandline.apps.bench.measure import Cost, Figures, measured
from strandline.apps.bench.nexmark_spark import SPARK, Alone
from strandline.apps.console import print_table
from strandline.connectors.sources.auctions import KINDS
from strandline.connectors.sources.base import open_source
from strandline.core.errors import StrandlineError
from strandline.database.script import read_script, start_script
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.runtime.kernels.batch import FROM

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

EVENTS: Final = 1_000_000
RATE: Final = 10_000  # events of a second
FILES: Final = 10
EXAMPLES: Final = Path(__file__).parents[4] / "examples" / "nexmark"
_DECLARED = re.compile(
    r"CREATE STREAM (?P<name>\w+)(?P<columns> \([^)]*\))? SOURCE nexmark\('(?P<kind>\w+)'[^)]*\)"
    r"(?P<valid>\s+VALID[^;]*)?;"
)


def nexmark(bench: Bench) -> Figures:
    """The queries of NEXMark, each against plain Spark where Spark can express it."""
    events = bench.rows or EVENTS
    chosen = _chosen(bench.queries)
    data = write_events(bench.directory / "nexmark", events)
    queries: list[Figures] = []
    ours: dict[str, Path] = {}
    for name in chosen:
        text = over_files((EXAMPLES / f"{name}.sql").read_text(), data)
        figures, ours[name] = bench.best(f"{name} strandline", events, lambda p, t=text: _run(bench, t, p))  # type: ignore[misc]
        queries.append({"query": name, "strandline": figures})
    for figures in queries:
        name = figures["query"]
        query = SPARK.get(name, "not compared: see the query of the benchmark that it resembles")
        if isinstance(query, str):
            figures["note"] = query
            continue
        spark, directory = bench.best(f"{name} spark alone", events, lambda p, q=query: _alone(bench, q, data, p))  # type: ignore[misc]
        ratio = figures["strandline"]["rows_per_s"] / spark["rows_per_s"]
        same = same_answer(_read(ours[name]), _read(directory), query)
        cpu = spark["cpu_seconds"] / figures["strandline"]["cpu_seconds"]
        figures |= {"spark": spark, "ratio": round(ratio, 2), "cpu_ratio": round(cpu, 2), "same_answer": same}
        figures["note"] = query.note
    return {"bench": "nexmark", "events": events, "queries": queries, "same_answer": None}


def _chosen(queries: Sequence[str]) -> list[str]:
    there = sorted((path.stem for path in EXAMPLES.glob("*.sql")), key=_in_order)
    if not there:
        raise StrandlineError(
            "cannot find the NEXMark queries",
            code="usage",
            hint="Run this from a clone: they are in examples/nexmark.",
        )
    for name in queries:
        if name not in there:
            raise StrandlineError(f'unknown query "{name}"', code="usage", hint=f"Queries are {', '.join(there)}.")
    return [name for name in there if name in queries] if queries else [name for name in there if name in SPARK]


def _in_order(name: str) -> tuple[bool, int, str]:
    number = re.fullmatch(r"q(\d+)", name)
    return number is None, int(number[1]) if number else 0, name


def write_events(directory: Path, events: int) -> Path:
    """The events as files, a directory per kind."""
    for kind, columns in KINDS.items():
        kind_directory = directory / kind
        kind_directory.mkdir(parents=True, exist_ok=True)
        call = ConnectorCall("nexmark", (kind,), {"events": events, "rate": RATE})
        stream = BaseStream(kind, tuple((name, type_) for name, (type_, _) in columns.items()), call, "date_time")
        source = open_source(stream)
        for number in range(FILES):
            begin, end = events * number // FILES, events * (number + 1) // FILES
            rows = pl.concat(chunk.rows.drop(FROM) for chunk in source.read(begin, end, frozenset(columns)))
            table = rows.to_arrow()
            zoned = [
                f.with_type(pa.timestamp("us", "UTC")) if pa.types.is_timestamp(f.type) else f for f in table.schema
            ]
            pq.write_table(table.cast(pa.schema(zoned)), kind_directory / f"{number:03d}.parquet")
    return directory


def over_files(text: str, data: Path) -> str:
    """A query that reads files in the place of the generator."""

    def declared(match: re.Match[str]) -> str:
        kind = match["kind"]
        columns = match["columns"] or f" ({', '.join(f'{name} {type_}' for name, (type_, _) in KINDS[kind].items())})"
        order = match["valid"] or (" ORDERED BY date_time" if match["columns"] is None else "")
        return f"CREATE STREAM {match['name']}{columns} SOURCE file('{data / kind}/*.parquet'){order};"

    return _DECLARED.sub(declared, text)


def _run(bench: Bench, text: str, directory: Path) -> Cost:
    spark = bench.session("ours")
    with measured() as cost:
        database = strandline.connect(spark=spark)
        script = read_script(database, text)
        for query in start_script(database, script, directory / "out", directory / "checkpoint"):
            query.await_end()
    return cost


def _alone(bench: Bench, query: Alone, data: Path, directory: Path) -> Cost:
    spark = bench.session("alone")
    out = str(directory / "out" / "q1")

    def keep(rows: DataFrame, batch: int) -> None:
        rows.withColumn("batch", F.lit(batch)).write.mode("append").parquet(out)

    with bench.settings({"spark.sql.shuffle.partitions": "2"}), measured() as cost:
        streams = {}
        for kind in KINDS:
            source = spark.readStream.schema(spark.read.parquet(str(data / kind)).schema)
            files = FILES // query.batches
            streams[kind] = source.option("maxFilesPerTrigger", files).parquet(str(data / kind))
        writer = query.build(streams).writeStream.outputMode(query.mode)
        writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
        if query.mode == "update":
            started = writer.foreachBatch(keep).start()
        else:
            started = writer.format("parquet").option("path", out).start()
        started.awaitTermination()
    return cost


def _read(directory: Path) -> pl.DataFrame:
    """A result: our `valid_from` and `valid_until`, and Spark's times, as microseconds."""
    frame = pl.read_parquet(str(directory / "out" / "q1" / "*.parquet"))
    return frame.with_columns(pl.col(pl.Datetime).dt.epoch("us"))


def same_answer(ours: pl.DataFrame, theirs: pl.DataFrame, query: Alone) -> bool | None:
    """True if the results agree where both have one; None where they cannot be compared."""
    start, end = pl.col("valid_from"), pl.col("valid_until").fill_null(2**63 - 1)
    columns = [name for name in ours.columns if name not in ("valid_from", "valid_until")]
    if not theirs.height:
        return None
    match query.kind:
        case "rows":
            return _equal(ours, theirs, columns)
        case "windows" | "one of windows":
            windows = [(ours.filter((start < at) & (end >= at)), rows) for (at,), rows in theirs.group_by("end")]
            if query.kind == "one of windows":
                windows = [(valid.join(rows, on=columns, how="semi"), rows) for valid, rows in windows]
            return all(_equal(valid, rows, columns) for valid, rows in windows)
        case "sessions":
            over = ours.filter(end == pl.col("last_bid") + 10_000_000)
            return _equal(over.join(theirs, on=columns, how="semi"), theirs, columns)
        case "last":
            if "window" in theirs.columns or "best" in theirs.columns:
                return None
            keys = theirs.columns[: query.keys]
            last = theirs.sort("batch").unique(keys, keep="last")
            return _equal(ours.filter(end == 2**63 - 1), last, columns)


def _equal(ours: pl.DataFrame, theirs: pl.DataFrame, columns: list[str]) -> bool:
    one, two = (_plain(frame.select(columns)).sort(columns) for frame in (ours, theirs))
    if one.height != two.height or not one.height:
        return False
    return all(_same(one.get_column(name), two.get_column(name)) for name in columns)


def _same(one: pl.Series, two: pl.Series) -> bool:
    if one.dtype.is_float():
        return bool(((one - two).abs() <= 1e-9 * one.abs()).all())
    return one.equals(two)


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers without their kinds: whole ones as 64 bits, DECIMALs as DOUBLEs."""
    return frame.with_columns(
        pl.col(pl.Int32, pl.UInt32).cast(pl.Int64), pl.col(pl.Decimal).cast(pl.Float64), pl.col(pl.Date).cast(pl.Int32)
    )


def report_nexmark(figures: Figures, console: Console) -> None:
    """One line per query."""
    heads = ("query", "strandline events/s", "CPU s", "spark events/s", "CPU s", "ratio", "CPU ratio", "same", "note")
    rows = []
    for figure in figures["queries"]:
        spark = ("cannot", "", "", "", "")
        if "spark" in figure:
            same = {True: "yes", False: "NO", None: ""}[figure["same_answer"]]
            spark = (*_speed(figure["spark"]), f"{figure['ratio']:.1f}", f"{figure['cpu_ratio']:.1f}", same)
        rows.append((figure["query"], *_speed(figure["strandline"]), *spark, figure["note"]))
    print_table(console, f"NEXMark, {figures['events']:,} events", heads, rows, left=("query", "note"))


def _speed(side: Figures) -> tuple[str, str]:
    return f"{side['rows_per_s']:,}", f"{side['cpu_seconds']:.1f}"
