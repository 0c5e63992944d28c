"""Evaluation of the cost model: equivalent plans, their estimates, and their measured costs.

Every query shape has at least two plans with the same results. Each runs in one process on generated streams until its
windows are full; then CPU seconds are counted. Two things are checked: that the estimated cheapest plan is the
cheapest, and that its state has the estimated size.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl
import pyarrow as pa
from rich.console import Console

from strandline.apps.bench.generated_streams import GeneratedSource, GeneratedStream, bound, statistics_of
from strandline.apps.bench.measure import Figures
from strandline.apps.bench.shapes import HELD_OUT_SHAPES, SHAPES, Shape
from strandline.apps.console import print_table
from strandline.core.temporal import Instant
from strandline.engines.local import LocalRun
from strandline.logical.plan import Plan
from strandline.planner.estimate import Estimates, estimate
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline
from strandline.planner.rules.prune_columns import prune_columns
from strandline.planner.stages import FILTERS, MAPS, SHARING, run_to_fixpoint
from strandline.runtime.kernels.batch import UNTIL
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.state.segments import column

if TYPE_CHECKING:
    from strandline.apps.bench.run import Bench

CLOSE: Final = 1.2  # the chosen plan may take so much longer than the best
LEAST_SECONDS: Final = 0.4  # of CPU time that a measurement lasts


def as_written(plan: Plan) -> Plan:
    """With filters and columns where they belong, and the joins as the text has them."""
    return run_to_fixpoint(
        SHARING, run_to_fixpoint(MAPS, prune_columns(run_to_fixpoint(MAPS, run_to_fixpoint(FILTERS, plan))))
    )


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured plan: CPU seconds per second of stream time, rows of state and those of them that are valid, and a
    checksum of its result."""

    seconds: float
    rows: float
    valid: float
    result: int


def pipeline_of(shape: Shape, label: str) -> Pipeline:
    plan = bound(shape.text(label), shape.streams)
    plan = plan if label in shape.raw else as_written(plan)
    return lower("q", plan, [made.stream for made in shape.streams], 1)


def measure(
    pipeline: Pipeline, streams: Sequence[GeneratedStream], window: float, batch: float, repeat: int
) -> Measured:
    """The best of several runs."""
    gc.collect()
    return min((_measure_once(pipeline, streams, window, batch) for _ in range(repeat)), key=lambda run: run.seconds)


def _measure_once(pipeline: Pipeline, streams: Sequence[GeneratedStream], window: float, batch: float) -> Measured:
    """Fill the windows, then measure. The result is that of the time in which they were filled."""
    # Results of a join are valid for up to a window, too, and their segments a little longer.
    fill = int(window / batch * (1 if window > 100 else 2.5)) + 2
    made = {stream.name: [stream.rows(n, batch) for n in range(fill)] for stream in streams}
    running = RunningPipeline(pipeline)
    run = LocalRun(running, sources={stream.name: GeneratedSource(stream, made[stream.name]) for stream in streams})
    reports = [report for _ in range(fill) if (report := run.step()) is not None]
    result = _checksum([table for report in reports for table in report.results.get("q", ())], running)
    rows: list[int] = []
    expired: list[int] = []
    seconds = 0.0
    while seconds < LEAST_SECONDS or len(rows) < 8:
        for stream in streams:
            made[stream.name].append(stream.rows(fill + len(rows), batch))
        began = time.process_time()
        run.step()
        seconds += time.process_time() - began
        rows.append(running.metrics.state_rows)
        expired.append(_count_expired(run, running.metrics.watermark("q")))
    run.close()
    stored = sum(rows) / len(rows)
    return Measured(seconds / (len(rows) * batch), stored, stored - sum(expired) / len(rows), result)


def _count_expired(run: LocalRun, watermark: Instant) -> int:
    """Rows of hashed logs that have ended: nothing can match them any more."""
    operators = [state for states in run.states.values() for state in states.values()]
    segments = [segment for state in operators for log in state.segments.values() for segment in log]
    return sum(int((column(s, UNTIL) <= watermark).sum()) for s in segments if "until" in s.facts)


def _checksum(tables: Sequence[pa.Table], running: RunningPipeline) -> int:
    """A number of a result that is independent of cuts: of every row a number, times its duration."""
    if not tables:
        return 0
    frame = pl.DataFrame(pa.concat_tables(tables))
    until = running.metrics.watermark("q")
    start, end = (frame.get_column(c).cast(pl.Int64).clip(upper_bound=until) for c in ("valid_from", "valid_until"))
    payload = frame.drop("valid_from", "valid_until")
    payload = payload.select(pl.all().cast(pl.Float64).round(9).add(0.0)) if payload.width else payload
    number = payload.rename({c: str(i) for i, c in enumerate(payload.columns)}).hash_rows(7).to_numpy() >> 40
    return int((number.astype("int64") * (end - start).to_numpy() % (1 << 31)).sum() % (1 << 31))


def predicted_ms(expected: Estimates) -> float:
    """CPU milliseconds per second, without reading: generated streams are not read from anywhere."""
    return 1000 * (expected.cost - sum(item.cost for item in expected.reading.values()))


def run_shape(shape: Shape, repeat: int) -> list[Figures]:
    """Every plan of a shape: estimated and measured."""
    figures: list[Figures] = []
    statistics = statistics_of(shape.streams)
    for label in shape.plans:
        pipeline = pipeline_of(shape, label)
        expected = estimate(pipeline, statistics, shape.batch)
        best = measure(pipeline, shape.streams, shape.window, shape.batch, repeat)
        figures.append(
            {
                "plan": label,
                "predicted_ms": round(predicted_ms(expected), 3),
                "measured_ms": round(1000 * best.seconds, 3),
                "predicted_rows": round(expected.rows),
                "measured_rows": round(best.rows),
                "stored_per_valid": round(best.rows / max(best.valid, 1), 2),
                "result": best.result,
            }
        )
    return figures


def judged(name: str, plans: list[Figures]) -> Figures:
    """Compare the model's choice and its state with the measurement."""
    chosen = min(plans, key=lambda plan: plan["predicted_ms"])
    best = min(plans, key=lambda plan: plan["measured_ms"])
    ratio = chosen["measured_ms"] / best["measured_ms"]
    state = chosen["predicted_rows"] / max(chosen["measured_rows"], 1)
    return {
        "shape": name,
        "plans": plans,
        "chosen": chosen["plan"],
        "times_best": round(ratio, 2),
        "right": ratio <= CLOSE,
        "state_ratio": round(state, 2),
        "same_answers": len({plan["result"] for plan in plans}) == 1,
    }


def run_costs(bench: Bench) -> Figures:
    """Equivalent plans of many query shapes: estimated and measured CPU and state."""
    verdicts = []
    shapes = HELD_OUT_SHAPES if bench.held_out else SHAPES
    for name in bench.chosen(shapes):
        verdict = judged(name, run_shape(shapes[name], bench.repeat))
        bench.say(f"{name}: {verdict['chosen']}, {verdict['times_best']} times the best")
        verdicts.append(verdict)
    close = 0.25 if bench.held_out else 0.15
    return {"bench": "costs", "shapes": verdicts, "close": close, "same_answer": None}


def report_costs(figures: Figures, console: Console) -> None:
    verdicts = figures["shapes"]
    heads = ("shape", "plan", "predicted ms/s", "measured ms/s", "predicted rows", "measured rows", "stored/valid")
    rows = []
    for verdict in verdicts:
        for number, item in enumerate(verdict["plans"]):
            mark = " *" if item["plan"] == verdict["chosen"] else ""
            milliseconds = (f"{item[f'{side}_ms']:.1f}" for side in ("predicted", "measured"))
            state = (f"{item[f'{side}_rows']:,}" for side in ("predicted", "measured"))
            state_columns = (*state, f"{item['stored_per_valid']:.2f}")
            rows.append(("" if number else verdict["shape"], f"{item['plan']}{mark}", *milliseconds, *state_columns))
    print_table(console, "costs", heads, rows, left=("shape", "plan"))
    right = sum(item["right"] for item in verdicts)
    states = [
        abs(plan["predicted_rows"] / max(plan["measured_rows"], 1) - 1) for item in verdicts for plan in item["plans"]
    ]
    close = figures["close"]
    within = sum(error <= close for error in states)
    console.print(f"* is what the model chooses: the best or within 20 % of it for {right} of {len(verdicts)} shapes")
    console.print(f"state within {100 * close:.0f} % of what was measured for {within} of {len(states)} plans")
    console.print(f"equal results of all plans of a shape: {all(item['same_answers'] for item in verdicts)}")
