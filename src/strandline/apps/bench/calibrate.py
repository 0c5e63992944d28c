"""Calibration of the cost model: runs the real operators at some sizes and fits the prices of work units.

Every query runs in a few settings: rows per batch, batches per window, wide and narrow rows. The model gives the work
of each operator by kind (`planner/cost.py`); how long that takes is measured, and least squares with nonnegative
coefficients give the price of each kind of work.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
from numpy.typing import NDArray

from strandline.apps.bench.generated_streams import (
    START,
    GeneratedSource,
    GeneratedStream,
    TimedRun,
    bound,
    statistics_of,
)
from strandline.connectors.sources.base import open_source
from strandline.core.durable import write_file
from strandline.core.errors import StrandlineError
from strandline.core.temporal import SECOND
from strandline.engines.local import LocalRun
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.planner.coalescing import coalesce_everywhere
from strandline.planner.estimate import estimate
from strandline.planner.physical import plan as physical
from strandline.planner.physical.forms import ALL_CHANGES, ALL_INTERVALS, BY_RULE, FormStrategy
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.plan import Pipeline, StreamForm, numbered
from strandline.planner.prices import Prices, calibration_file
from strandline.planner.stages import optimize
from strandline.runtime.pipeline import RunningPipeline

Floats = NDArray[np.float64]
SMALLEST: Final = 2e-4  # seconds: less than this is noise, and is not fitted exactly

_JOINED = "a {w} {kind} JOIN b {w} ON a.k = b.k"
_COUNTED = "(SELECT k, COUNT(*) AS n FROM a {w} GROUP BY k)"
QUERIES: Final[Mapping[str, str]] = {
    "filter": "SELECT k, v * 2 AS w, v + 1 AS x FROM a {w} WHERE v < 0.5",
    "pass": "SELECT * FROM a {w}",
    "join": f"SELECT a.*, b.v AS w FROM {_JOINED.format(kind='INNER', w='{w}')}",
    "condition": f"SELECT a.*, b.v AS w FROM {_JOINED.format(kind='INNER', w='{w}')} AND a.v < b.v",
    "pairs": "SELECT a.v, b.v AS w FROM a {s} JOIN b {s} ON a.v < b.v AND a.k <> b.k",
    "left": f"SELECT a.*, b.v AS w FROM {_JOINED.format(kind='LEFT', w='{w}')}",
    "semi": f"SELECT a.* FROM {_JOINED.format(kind='SEMI', w='{w}')}",
    "count": "SELECT k, COUNT(*) AS n FROM a {w} GROUP BY k",
    "joined values": f"SELECT DISTINCT a.k FROM {_JOINED.format(kind='INNER', w='{w}')}",
    "joined groups": f"SELECT a.k, COUNT(*) AS n FROM {_JOINED.format(kind='INNER', w='{w}')} GROUP BY a.k",
    "sums": "SELECT k, SUM(v) AS s, AVG(v) AS m, COUNT(k) AS n FROM a {w} GROUP BY k",
    "extremes": "SELECT k, MIN(v) AS s, MAX(v) AS m FROM a {w} GROUP BY k",
    "unchanged extremes": "SELECT k, MIN(v) AS s, MAX(v) AS m FROM a {w} GROUP BY k",
    "left out": "SELECT x.k, b.v FROM (SELECT k FROM a {w} GROUP BY k HAVING COUNT(*) > 1) AS x, b {s} WHERE x.k = b.k",
    "total": "SELECT COUNT(*) AS n, SUM(v) AS s FROM a {w}",
    "member": "SELECT k, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY v) AS m FROM a {w} GROUP BY k",
    "distinct": "SELECT DISTINCT k FROM a {w}",
    "distinct values": "SELECT g, COUNT(DISTINCT k) AS n FROM a [RANGE UNBOUNDED] GROUP BY g",
    "except": "SELECT k FROM a {w} EXCEPT ALL SELECT k FROM b {w}",
    "rows": "SELECT k, v FROM a WINDOW(PARTITION BY k ROWS 3)",
    "session": "SELECT k, v FROM a WINDOW(PARTITION BY k SESSION {gap})",
    "top": "SELECT k, v FROM a {w} ORDER BY v DESC LIMIT 100",
    "first of a slide": "SELECT k, v FROM a WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND) ORDER BY v DESC LIMIT 100",
    "rank": "SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v) AS r FROM a {w} QUALIFY r <= 2",
    "slide": "SELECT k, v FROM a WINDOW(RANGE 2 SECONDS SLIDE 1 SECOND)",
    "granules": "SELECT k FROM (SELECT k FROM a {w} GRANULARITY(1 SECOND)) AS x WINDOW(RANGE 4 SECONDS SLIDE 1 SECOND)",
    "changes": "ISTREAM(SELECT k, v FROM a {w})",
    "arrivals": "ISTREAM(SELECT DISTINCT k FROM a [RANGE UNBOUNDED])",
    "union": "SELECT k, v FROM a {w} UNION ALL SELECT k, v FROM b {w}",
    "groups as changes": "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a {w} GROUP BY k",
    "extremes as changes": "SELECT k, MIN(v) AS s FROM a {w} GROUP BY k",
    "rows as changes": "SELECT k, v FROM a WINDOW(PARTITION BY k ROWS 3)",
    "left as changes": f"SELECT a.*, b.v AS w FROM {_JOINED.format(kind='LEFT', w='{w}')}",
    "signed join": f"SELECT a.*, b.v AS w FROM {_JOINED.format(kind='INNER', w='{w}')}",
    "signed left": f"SELECT a.*, b.v AS w FROM {_JOINED.format(kind='LEFT', w='{w}')}",
    "signed values": "SELECT DISTINCT k FROM a {w}",
    "signed extremes": "SELECT k, MAX(v) AS m FROM a {w} GROUP BY k",
    "first of signed": f"SELECT x.v FROM (SELECT a.v FROM {_JOINED.format(kind='INNER', w='{w}')}) AS x"
    " ORDER BY v LIMIT 10",
    "look-up": f"SELECT a.*, h.n FROM a JOIN {_COUNTED} AS h ON a.k = h.k",
    "followed": f"SELECT b.v, h.n FROM b {{w}} JOIN {_COUNTED} AS h ON b.k = h.k",
    "groups of groups": f"SELECT n, COUNT(*) AS c FROM {_COUNTED} AS h GROUP BY n",
    "coalesced": f"SELECT h.n FROM b {{s}} JOIN {_COUNTED} AS h ON b.k = h.k",
}
# With results as changes: by rule, or with one form at every edge.
FORMS: Final[Mapping[str, FormStrategy]] = {
    **dict.fromkeys(("groups as changes", "extremes as changes", "rows as changes", "left as changes"), BY_RULE),
    **dict.fromkeys(("look-up", "followed", "groups of groups"), BY_RULE),
    **dict.fromkeys(("signed join", "signed left", "signed values", "signed extremes", "first of signed"), ALL_CHANGES),
    "coalesced": ALL_INTERVALS,
}


@dataclass(frozen=True, slots=True)
class Setting:
    """Rows of a stream per batch, batches per window, distinct keys per row of the window, and the width of rows."""

    rows: int
    window: float
    keys: float
    wide: bool

    @property
    def streams(self) -> tuple[GeneratedStream, GeneratedStream]:
        keys = max(2, round(self.rows * self.window * self.keys))
        more = tuple(f"x{n}" for n in range(8)) if self.wide else ()
        return tuple(GeneratedStream(n, self.rows, {"k": keys, "g": 50}, ("v", *more)) for n in ("a", "b"))  # type: ignore[return-value]


SETTINGS: Final = (
    Setting(500, 2, 0.5, False),
    Setting(20_000, 2, 0.5, False),
    Setting(5_000, 8, 0.05, True),
    Setting(20_000, 5, 0.1, True),
    Setting(2_000, 12, 1.0, False),
)
# Measured in every other setting.
SLOW_TO_MEASURE: Final = ("condition", "left", "semi", "joined values", "joined groups", *FORMS)
COALESCED: Final = ("unchanged extremes", "left out")
DRIVEN: Final = ("pass", "join", "except")  # the cost of a batch apart from its operators is measured with these
COUNTED: Final = 3  # batches that are measured, when the state is full


@dataclass(frozen=True, slots=True)
class Sample:
    """Work of an operator and the seconds that it took."""

    operator: str
    work: Mapping[str, float]
    seconds: float


def calibrate(say: Callable[[str], None], settings: Sequence[Setting] = SETTINGS, repeat: int = 1) -> Prices:
    """Measure and fit; takes about a minute for each of `repeat` times that everything runs: the best counts."""
    began = time.monotonic()
    samples: list[Sample] = []
    list(_samples("count", QUERIES["count"], settings[0]))  # the first use of a library does not count
    for name, query in QUERIES.items():
        say(f"{name} ({len(samples)} measurements so far)")
        for setting in settings[::2] if name in SLOW_TO_MEASURE else settings:
            # Without a key all pairs of a batch are compared, and their number is that of the rows squared.
            capped_setting = replace(setting, rows=min(setting.rows, 1_000)) if name == "pairs" else setting
            samples += _fastest([list(_samples(name, query, capped_setting)) for _ in range(repeat)])
        if name in DRIVEN:
            samples += _fastest([[_driving(name, query, setting) for setting in settings[:2]] for _ in range(repeat)])
    say("reading")
    samples += _fastest([list(_reading()) for _ in range(repeat)])
    by_operator: dict[str, list[Sample]] = {}
    for sample in samples:
        by_operator.setdefault(sample.operator, []).append(sample)
    seconds = {name: fitted(measurements) for name, measurements in sorted(by_operator.items())}
    facts = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": os.cpu_count() or 1,
        "machine": platform.machine(),
        "seconds": round(time.monotonic() - began, 1),
        "error": {
            name: round(error_of(measurements, seconds[name]), 3) for name, measurements in sorted(by_operator.items())
        },
    }
    return Prices(seconds, "measured", facts)


def _fastest(runs: Sequence[Sequence[Sample]]) -> list[Sample]:
    """Of each sample the one that took the least, over equal runs."""
    return [min(samples, key=lambda sample: sample.seconds) for samples in zip(*runs, strict=True)]


def _samples(name: str, query: str, setting: Setting) -> Iterator[Sample]:
    pipeline = _pipeline(name, query, setting)
    streams = _streams_read(pipeline, setting)
    run = TimedRun(pipeline)
    fill = int(setting.window) + 2
    rows = [{made.name: made.rows(n, 1.0) for made in streams} for n in range(fill + COUNTED)]
    for number, batch in enumerate(rows):
        if number == fill:
            run.forget()
        run.step(batch, START + (number + 1) * SECOND)
    cost_estimate = estimate(pipeline, statistics_of(streams))
    kinds = {
        f"{fragment.id}.{number}": node.tag
        for fragment in pipeline.fragments
        for number, node in enumerate(numbered(fragment.root))
    }
    for step, seconds in run.seconds().items():
        yield Sample(kinds[step], cost_estimate.steps[step].work, seconds / COUNTED)
    for fragment in pipeline.fragments:
        kind = "Result" if isinstance(fragment.route, physical.ResultOf) else "Exchange"
        yield Sample(kind, cost_estimate.sending[fragment.id].work, run.sending[fragment.id] / COUNTED)


def _driving(name: str, query: str, setting: Setting, counted: int = 8) -> Sample:
    """Cost of a run apart from the operators and the exchanges."""
    pipeline = _pipeline(name, query, setting)
    streams = _streams_read(pipeline, setting)
    batches = {made.name: [made.rows(n, 1.0) for n in range(2 + counted)] for made in streams}
    timed = TimedRun(pipeline)
    sources = {made.name: GeneratedSource(made, batches[made.name]) for made in streams}
    run = LocalRun(RunningPipeline(pipeline), sources=sources)
    seconds = 0.0
    for number in range(2 + counted):
        if number == 2:
            timed.forget()
        began = time.process_time()
        run.step()
        seconds += time.process_time() - began if number >= 2 else 0.0
        timed.step({name: rows[number] for name, rows in batches.items()}, START + (number + 1) * SECOND)
    run.close()
    seconds -= sum(timed.seconds().values()) + sum(timed.sending.values())
    work = estimate(pipeline, statistics_of(streams)).driving.work
    return Sample("Batch", work, max(seconds, 0.0) / counted)


def _pipeline(name: str, query: str, setting: Setting) -> Pipeline:
    milliseconds = round(setting.window * 1000)
    texts = {
        "w": f"WINDOW(RANGE {milliseconds} MILLISECONDS)",
        "s": "WINDOW(RANGE 100 MILLISECONDS)",
        "gap": f"{max(1, round(milliseconds * setting.keys))} MILLISECONDS",
    }
    for key, text in texts.items():
        query = query.replace(f"{{{key}}}", text)
    streams = setting.streams
    plan = optimize(bound(query, streams), statistics_of(streams))
    form: StreamForm = "changes" if name in FORMS else "intervals"
    strategy = FORMS.get(name, BY_RULE)
    pipeline = lower(name, plan, [made.stream for made in streams], 1, form=form, strategy=strategy)
    return coalesce_everywhere(pipeline) if name in COALESCED else pipeline


def _streams_read(pipeline: Pipeline, setting: Setting) -> list[GeneratedStream]:
    names = {stream.name for stream in pipeline.streams}
    return [made for made in setting.streams if made.name in names]


def _reading() -> Iterator[Sample]:
    """Parquet files, narrow and wide."""
    for rows, wide in ((2_000, False), (200_000, False), (100_000, True)):
        made = GeneratedStream("a", 1000, {"k": 1000}, tuple(f"x{n}" for n in range(10)) if wide else ("v",))
        with TemporaryDirectory(prefix="strandline-calibrate-") as directory:
            path = Path(directory) / "a.parquet"
            made.rows(0, rows / 1000).select(name for name, _ in made.columns).write_parquet(path)
            stream = BaseStream("a", made.columns, ConnectorCall("file", (str(path),)), "t")
            source = open_source(stream, Path(directory) / "log")
            at, _ = source.advance(0, rows)
            began = time.process_time()
            for _ in source.read(0, at, frozenset(name for name, _ in made.columns)):
                pass
            seconds = time.process_time() - began
        size = 8.0 * len(made.columns) + 16
        yield Sample("Read", {"row": float(rows), "byte": rows * size, "step": 1.0}, seconds)


def fitted(samples: Sequence[Sample]) -> dict[str, float]:
    """The price of each unit, so that the relative errors are small."""
    units = sorted({unit for sample in samples for unit, amount in sample.work.items() if amount})
    seconds = np.array([max(sample.seconds, SMALLEST) for sample in samples])
    work = np.array([[sample.work.get(unit, 0.0) for unit in units] for sample in samples]) / seconds[:, None]
    scale = np.maximum(work.max(axis=0), 1e-300)
    target = np.array([sample.seconds for sample in samples]) / seconds
    prices = nonnegative(work / scale, target) / scale
    return {unit: float(f"{price:.3g}") for unit, price in zip(units, prices, strict=True) if price > 0}


def error_of(samples: Sequence[Sample], prices: Mapping[str, float]) -> float:
    """The typical relative error: its median."""
    errors = [
        abs(sum(amount * prices.get(unit, 0.0) for unit, amount in s.work.items()) - s.seconds)
        / max(s.seconds, SMALLEST)
        for s in samples
    ]
    return float(np.median(errors))


def nonnegative(matrix: Floats, target: Floats) -> Floats:
    """Nonnegative least squares (active set method): solve for the active coefficients, remove those that would become
    negative, until no other one would help."""
    size = matrix.shape[1]
    used = np.zeros(size, np.bool_)
    coefficients = np.zeros(size)
    for _ in range(10 * size):
        gain = matrix.T @ (target - matrix @ coefficients)
        gain[used] = -np.inf
        best = int(np.argmax(gain))
        if gain[best] <= 1e-10:
            break
        used[best] = True
        while True:
            solved = np.zeros(size)
            solved[used] = np.linalg.lstsq(matrix[:, used], target, rcond=None)[0]
            low = used & (solved <= 0)
            if not low.any():
                coefficients = solved
                break
            step = np.min(coefficients[low] / (coefficients[low] - solved[low]))
            coefficients = coefficients + step * (solved - coefficients)
            used &= coefficients > 1e-14
            coefficients[~used] = 0.0
    return coefficients


def show(fitted_prices: Prices) -> str:
    """The constants as a table: nanoseconds per unit, and how far off the fit is on the median."""
    lines = ["nanoseconds per unit of work, and by how much the median measurement is off"]
    for name, units in fitted_prices.seconds.items():
        prices = ", ".join(f"{unit} {1e9 * price:,.3g}" for unit, price in units.items())
        lines.append(f"  {name:<16} {fitted_prices.facts['error'][name]:>4.0%}  {prices}")
    rows = capacity(fitted_prices)
    lines.append(f"a core counts the rows of a window, grouped by key, at {rows:,.0f} rows/s")
    return "\n".join(lines)


def capacity(prices: Prices, rate: int = 100_000) -> float:
    """Rows per second that one core takes in, for an ordinary query: a count per key over ten seconds."""
    made = GeneratedStream("a", rate, {"k": 1_000})
    plan = bound("SELECT k, COUNT(*) AS n FROM a WINDOW(RANGE 10 SECONDS) GROUP BY k", [made])
    pipeline = lower("q", optimize(plan, statistics_of([made])), [made.stream], 1)
    return rate / estimate(pipeline, statistics_of([made]), prices=prices).cost


def write(prices: Prices, out: Path | None) -> Path:
    """Write the constants to the optimizer's file, or another one."""
    path = out or calibration_file()
    if path is None:
        raise StrandlineError(
            "cannot find a home directory for the constants", code="bad-costs", hint="Give --out FILE."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, (json.dumps(prices.to_json(), indent=1) + "\n").encode(), sync=False)
    except OSError as error:
        raise StrandlineError(f"cannot write {path}", code="bad-costs", detail=str(error)) from None
    return path
