"""CSV and JSON lines that several tasks read: the same rows, late rows, bad rows and answers as of one task."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from source_testing import declared
from strandline.connectors.sources import file
from strandline.connectors.sources.base import Source
from strandline.connectors.sources.files import planning
from strandline.core.temporal import BEFORE_ALL, SECOND, Instant
from strandline.core.types import BIGINT, TIMESTAMP, VARCHAR
from strandline.engines import local
from strandline.engines.local import LocalRun
from strandline.logical.reference.interpreter import Element
from strandline.logical.schema import schema
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.stages import optimize
from strandline.runtime import split_times
from strandline.runtime.ingest import ingest
from strandline.runtime.offsets import InputSplit, SourceOffset, plan_splits
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.result import from_result
from strandline.runtime.split_times import SplitTimes
from strandline.runtime.stage import StageOutput
from strandline.runtime.watermark import SourceStatus, check_balance
from support import LONG, Answer, Arrivals, assert_exact, bind, elements_of, moment

COLUMNS = (("k", BIGINT), ("v", VARCHAR), ("ts", TIMESTAMP))
DISORDER = 3 * SECOND
QUERIES = (
    "SELECT v, COUNT(*) AS n, SUM(k) AS total FROM s WINDOW(RANGE 5 SECONDS) GROUP BY v",
    "SELECT COUNT(*) AS n, MIN(k) AS first, MAX(k) AS last FROM s WINDOW(ROWS 4)",
)
TEXTS = ("a", "b,c", "two\nlines", "two\r\nlines", 'a "quoted" word', "", ";", "ä€")
SEEDS = 200 if LONG else 12


@dataclass
class Content:
    """A text file, and what is in it, by its own account: rows in order, and the numbers of bad ones."""

    data: bytes = b""
    accepted: list[tuple[int, str | None, Instant]] = field(default_factory=list)
    late: list[int] = field(default_factory=list)  # their k
    bad: list[int] = field(default_factory=list)  # their number in the file, from 1


def write_content(chance: random.Random, kind: str, delimiter: str, rows: int) -> Content:
    """Random records: out of order, sometimes by too much, some bad, some over several lines, some empty lines."""
    content = Content()
    line_end = chance.choice((b"\n", b"\r\n", b"\r"))
    lines = [delimiter.join(("k", "v", "ts")).encode()] if kind == "csv" else []
    latest = BEFORE_ALL
    for k in range(rows):
        text = chance.choice(TEXTS)
        time = k * SECOND // 4 - chance.choice((0, 0, 0, 1, 3, 3, 5)) * SECOND
        fields = [str(k), text, moment(time).isoformat()]
        fate = chance.random()
        if fate < 0.05:
            lines.append(b"")
            continue
        if fate < 0.15:
            content.bad.append(len(lines) + 1)
            lines.append(_bad_record(chance, kind, delimiter, fields))
            continue
        lines.append(_record(chance, kind, delimiter, fields))
        if latest != BEFORE_ALL and time < latest - DISORDER:
            content.late.append(k)
        else:
            content.accepted.append((k, None if kind == "csv" and text == "" else text, time))
        latest = max(latest, time)
    content.data = line_end.join(lines) + (line_end if chance.random() < 0.5 else b"")
    return content


def _record(chance: random.Random, kind: str, delimiter: str, fields: list[str]) -> bytes:
    if kind == "json":
        return json.dumps({"k": int(fields[0]), "v": fields[1], "ts": fields[2]}).encode()
    if any(character in fields[1] for character in '"\r\n,;'):
        fields = [fields[0], '"' + fields[1].replace('"', '""') + '"', fields[2]]
    elif fields[1] and chance.random() < 0.3:
        fields = [f'"{text}"' for text in fields]
    return delimiter.join(fields).encode()


def _bad_record(chance: random.Random, kind: str, delimiter: str, fields: list[str]) -> bytes:
    if kind == "json":
        return chance.choice((b"{", b'{"k": "x", "ts": "2024-01-01"}', b'{"k": 1, "v": "\xff"}', b"[1]"))
    far = moment(1_000_000 * SECOND).isoformat()  # a row that is none does not make others late
    bad = chance.choice((["x", "a", far], [fields[0], "a", "noon"], [fields[0], far], [*fields[:1], "a", far, "more"]))
    data = delimiter.join(bad).encode()
    return data if chance.random() < 0.8 else data.replace(b"a", b"\xff")


@dataclass
class ReportingTasks:
    """Ingestion in which tasks report their latest times to each other; with `lost`, half of the reports are gone."""

    directory: Path
    lost: random.Random | None = None

    def ingest(
        self,
        pipeline: Pipeline,
        source: Source,
        split: InputSplit,
        before: Mapping[str, SourceStatus],
        out: StageOutput,
    ) -> SourceStatus:
        status = ingest(pipeline, source, split, before, out, SplitTimes(self.directory, split.after.at))
        if self.lost is not None and self.lost.random() < 0.5:
            for path in self.directory.glob(f"{split.after.at}-{split.number}"):
                path.unlink()
        return status


def run(source: Source, text: str, tasks: int, batch_rows: int) -> tuple[Answer, int]:
    """The answer, and the largest number of tasks that a batch had."""
    plan = bind(text, [Arrivals("s", COLUMNS, (), DISORDER)])
    running = RunningPipeline(lower("q", optimize(plan), [source.stream], 2), batch_rows=batch_rows)
    answer, most = Answer(), 0
    executed = LocalRun(running, sources={"s": source}, tasks=tasks)
    before = executed.positions
    for report in executed.batches():
        most = max(most, len(plan_splits(before, executed.positions)))
        before = executed.positions
        for table in report.results.get("q", ()):
            answer.elements += elements_of(from_result(table, schema(plan)))
        late = [rows.table for rows in report.late.get("s", ())]
        for kind, tables in (("late", late), ("rejected", report.rejected.get("s", ()))):
            getattr(answer, kind).setdefault("s", []).extend(row for table in tables for row in table.to_pylist())
    status = running.metrics.statuses["s"]
    check_balance(status)
    answer.late_count, answer.rejected_count = {"s": status.late}, {"s": status.rejected}
    return answer, most


@pytest.mark.parametrize("seed", range(SEEDS))
def test_rows_and_answers_are_the_same_for_any_split(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    kind, delimiter = ("json", ",") if seed % 4 == 3 else ("csv", chance.choice(",;\t"))
    content = write_content(chance, kind, delimiter, rows=chance.choice((3, 60, 60)))
    path = tmp_path / f"a.{kind}"
    path.write_bytes(content.data)
    rejected: set[tuple[tuple[str, object], ...]] | None = None
    for text, reported in itertools.product(QUERIES, (None, "all", "some")):
        monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", chance.choice((1, 40, 200, 1_000)))
        monkeypatch.setattr(file, "TASK_ROWS", 1)
        monkeypatch.setattr(split_times, "_LEAST_PATIENCE", 0.0)
        if reported is not None:
            exchange = ReportingTasks(
                tmp_path / f"{QUERIES.index(text)}-{reported}", random.Random(seed) if reported == "some" else None
            )
            monkeypatch.setattr(local, "ingest", exchange.ingest)
        option = "" if delimiter == "," else f", delimiter => '{delimiter}'".replace("\t", "\\t")
        source = declared(
            "(k BIGINT, v VARCHAR, ts TIMESTAMP)", f"file('{path}'{option})", "ORDERED BY ts WITHIN 3 SECONDS"
        )
        answer, _ = run(source, text, tasks=chance.choice((1, 2, 3, 7)), batch_rows=chance.choice((7, 40, 1_000)))
        monkeypatch.setattr(local, "ingest", ingest)
        assert [row["k"] for row in answer.late.get("s", [])] == content.late
        assert answer.late_count == {"s": len(content.late)}
        assert sorted(row["row"] for row in answer.rejected.get("s", [])) == content.bad
        found = {tuple(row.items()) for row in answer.rejected.get("s", [])}
        assert rejected is None or found == rejected, "places, reasons and contents do not depend on the split"
        rejected = found
        rows = [Element(time, {"k": k, "v": v, "ts": moment(time)}) for k, v, time in content.accepted]
        rows.sort(key=lambda element: element.time)
        assert_exact(bind(text, [Arrivals("s", COLUMNS, (), DISORDER)]), {"s": tuple(rows)}, answer)


def plain_csv(path: Path, rows: int) -> None:
    lines = [f"{k},a,{moment(k * SECOND).isoformat()}" for k in range(rows)]
    data = ("k,v,ts\n" + "\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def csv_source(path: Path, directory: Path | None = None, clauses: str = "ORDERED BY ts") -> Source:
    return declared("(k BIGINT, v VARCHAR, ts TIMESTAMP)", f"file('{path}')", clauses, directory)


def test_one_file_is_read_by_all_tasks_and_a_compressed_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 1_000)
    monkeypatch.setattr(planning, "STREAM_UNIT_BYTES", 1_000)
    monkeypatch.setattr(file, "TASK_ROWS", 50)
    for name, tasks in (("a.csv", 4), ("b.csv.gz", 1)):
        plain_csv(tmp_path / name, 1_000)
        answer, most = run(csv_source(tmp_path / name), "SELECT k FROM s", 4, batch_rows=10_000)
        assert most == tasks and [k for (k,), *_ in answer.elements] == list(range(1_000))


def test_small_text_is_not_worth_a_second_task_but_long_lines_are(tmp_path: Path) -> None:
    plain_csv(tmp_path / "small.csv", 1_000)
    assert split_points_of(csv_source(tmp_path / "small.csv")) == ()
    # Few rows, but as many bytes as need another task.
    text = "x" * 100_000
    lines = [f"{k},{text},{moment(k * SECOND).isoformat()}" for k in range(160)]
    (tmp_path / "long.csv").write_text("k,v,ts\n" + "\n".join(lines))
    assert split_points_of(csv_source(tmp_path / "long.csv")) != ()


def split_points_of(source: Source) -> tuple[int, ...]:
    end, _ = source.advance(0, 1_000_000)
    return source.split_points(0, end, 2)


def test_changes_are_read_in_their_order_by_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 100)
    monkeypatch.setattr(file, "TASK_ROWS", 1)
    lines = [f"+,{k},{moment(k * SECOND).isoformat()}" for k in range(100)]
    (tmp_path / "a.csv").write_text("op,k,ts\n" + "\n".join(lines))
    call, columns = f"file('{tmp_path}/a.csv')", "(op VARCHAR, k BIGINT, ts TIMESTAMP)"
    assert split_points_of(declared(columns, call)) != ()
    assert split_points_of(declared(columns, call, "ORDERED BY ts CHANGES IN op PRIMARY KEY (k)")) == ()


def test_the_units_of_a_log_with_larger_ones_are_read_as_they_were_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint of before, whose units were larger, goes on with smaller ones."""
    plain_csv(tmp_path / "a.csv", 1_000)
    (tmp_path / "log").mkdir()
    monkeypatch.setattr(file, "TASK_ROWS", 1)
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 16_000)
    earlier = csv_source(tmp_path / "a.csv", tmp_path / "log")
    end, _ = earlier.advance(0, 400)
    seal = earlier.seal(end)
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 500)
    source = csv_source(tmp_path / "a.csv", tmp_path / "log")
    source.verify(end, seal)
    source.resume(end)
    last, ended = source.advance(end, 10_000)
    assert ended and len(source.split_points(end, last, 4)) == 3
    rows = [k for chunk in source.read(0, last, frozenset()) for k in chunk.rows["k"].to_list()]
    assert rows == list(range(1_000))
    assert source.seal(end) == seal


def test_sources_share_the_tasks_by_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TEXT_UNIT_BYTES", 100)
    monkeypatch.setattr(file, "TASK_ROWS", 1)
    sources: dict[str, Source] = {}
    for name, rows in (("s", 900), ("small", 2)):
        plain_csv(tmp_path / f"{name}.csv", rows)
        sources[name] = csv_source(tmp_path / f"{name}.csv")
    plan = bind("SELECT k FROM s", [Arrivals("s", COLUMNS, ())])
    running = RunningPipeline(lower("q", plan, [sources["s"].stream], 1))
    planner = running.open_planner(sources, 4)
    before: Mapping[str, SourceOffset] = planner.beginning()
    after = planner.next(before)
    assert Counter(split.stream for split in plan_splits(before, after)) == {"s": 4, "small": 1}
    # What the offset file says, a replay reads.
    again = {name: SourceOffset.from_json(json.loads(json.dumps(offset.to_json()))) for name, offset in after.items()}
    assert plan_splits(before, again) == plan_splits(before, after)
    assert planner.next(after) == after, "nothing new is no batch"


def test_a_task_asks_the_others_and_does_not_wait_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_times, "_LEAST_PATIENCE", 0.05)
    times = SplitTimes(tmp_path / "latest", 7)
    assert times.wait_for(0, 0.0) is None
    times.report(0, BEFORE_ALL)
    times.report(1, -5)
    assert (times.wait_for(0, 0.0), times.wait_for(1, 0.0), times.wait_for(2, 0.0)) == (BEFORE_ALL, -5, None)
    assert SplitTimes(tmp_path / "latest", 8).wait_for(0, 0.0) is None, "that was another batch"
