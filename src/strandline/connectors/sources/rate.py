"""Rate source: a generated stream of a given rate, the same rows in every run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.connectors.sources.base import Chunk, SourceArguments
from strandline.connectors.sources.clock import ClockedSource
from strandline.connectors.sources.conversion import conform
from strandline.connectors.sources.poisson import PoissonProcess
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import SECOND, instant
from strandline.core.types import BIGINT, DOUBLE, is_numeric
from strandline.logical.catalog import BaseStream, StreamStatistics
from strandline.runtime.kernels.hashing import mix

_STREAM_SEEDS = 0xA24BAED4963EE407
ARRIVALS = ("constant", "poisson")
_ALL = 2**62  # rows: practically unbounded


class RateSource(ClockedSource):
    """`rate(rows_per_second => 100, total => NULL, start => NULL, keys => 10, seed => 0, pace => true)`.

    Row n has time `start + n / rows_per_second`. A column named `value` is n, `key` is a number below `keys`, `random`
    a number in [0, 1); both are drawn by a hash of (seed, n). With `keys => (10, 500)` there are `key` and `key2`, each
    below its number. Rows appear as their time comes, or as fast as they are taken with `pace => false`. Without
    `start` it is the clock at the first start, which is saved. With `burst => 5, burst_seconds => 60` they come five
    times as fast in the first minute. With `arrivals => 'poisson'` the distances of rows are exponential with the mean
    `1 / rows_per_second`, drawn by hashes of the seed: row n comes after n + 1 of them.
    """

    traits = Traits(True, True, True, "row n is a function of n and the seed")
    shares_log = True

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        arguments = SourceArguments(stream.source)
        rate = arguments.option("rows_per_second", (int, float, str), 100)
        self.total = arguments.option("total", int, None)
        self.start = arguments.option("start", str, None)
        keys = arguments.option("keys", (int, list), 10)
        self.seed = arguments.option("seed", int, 0)
        self.pace = arguments.option("pace", bool, True)
        burst = arguments.option("burst", (int, float, str), 1)
        burst_seconds = arguments.option("burst_seconds", (int, float, str), 0)
        arrivals = arguments.option("arrivals", str, "constant")
        arguments.done(most=0)
        if arrivals not in ARRIVALS:
            raise arguments.error(f"arrivals of rate() are {' or '.join(ARRIVALS)}, not '{arrivals}'")
        self.process = PoissonProcess(self.seed) if arrivals == "poisson" else None
        try:
            self.rate, self.burst, self.burst_seconds = map(float, (rate, burst, burst_seconds))
            self.keys = [int(value) for value in (keys if isinstance(keys, list) else [keys])]
            if self.start is not None:
                instant(self.start)
        except (ValueError, TypeError) as error:
            raise arguments.error(f"invalid option of rate(): {error}") from None
        if min(self.rate, self.burst, *self.keys) <= 0 or self.burst_seconds < 0 or not self.keys:
            raise arguments.error("rows_per_second, keys and burst of rate() must be greater than 0")
        self.key_names = [f"key{number or ''}" for number in (0, *range(2, len(self.keys) + 1))]

    def check(self, span: Span | None) -> None:
        arguments = SourceArguments(self.stream.source, span)
        for name, kind in self.stream.columns:
            if name == self.stream.time_column:
                continue
            if name not in ("value", "random", *self.key_names):
                others = ", ".join(self.key_names)
                raise arguments.error(f'rate() has no column "{name}"; it has value, random, {others} and the time')
            if not is_numeric(kind):
                expected = DOUBLE if name == "random" else BIGINT
                raise arguments.error(f'column "{name}" of rate() is {expected}, not {kind}')

    def statistics(self) -> StreamStatistics:
        keys = dict(zip(self.key_names, map(float, self.keys), strict=True))
        declared = {name for name, _ in self.stream.columns}
        values = {name: count for name, count in keys.items() if name in declared}
        return StreamStatistics(self.rate, values, steady=self.burst == 1 or not self.burst_seconds)

    def rows_by(self, elapsed_us: int) -> int:
        seconds = elapsed_us / SECOND
        early = min(seconds, self.burst_seconds)
        expected = early * self.rate * self.burst + (seconds - early) * self.rate
        return int(expected) if self.process is None else self.process.count_by(expected)

    def _instants_of(self, start: int, end: int) -> npt.NDArray[np.int64]:
        """Times of rows, in microseconds from the beginning."""
        fast = self.rate * self.burst
        due = np.arange(start, end) if self.process is None else self.process.arrivals(start, end)
        early = np.minimum(due, self.burst_seconds * fast)
        instants = np.floor(early * (SECOND / fast) + (due - early) * (SECOND / self.rate))
        return instants.astype(np.int64)

    def rows_left(self, position: int) -> int | None:
        return self.advance(position, _ALL)[0] - position if self.pace or self.total is not None else None

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        number = np.arange(start, end, dtype=np.int64)
        drawn = mix(mix(number.view(np.uint64)) ^ np.uint64(self.seed * _STREAM_SEEDS % 2**64))
        random = mix(drawn)
        made = {"value": number, "random": (random >> np.uint64(11)).astype(np.float64) / 2.0**53}
        for name, cardinality in zip(self.key_names, self.keys, strict=True):
            made[name] = (drawn % np.uint64(cardinality)).astype(np.int64)
            drawn = random = mix(random)
        time_column = self.stream.time_column
        if time_column is not None:
            began = instant(self.start) if self.start is not None else self.began
            made[time_column] = began + self._instants_of(start, end)
        frame = pl.DataFrame({name: made[name] for name, _ in self.stream.columns})
        if time_column is not None and self.stream.column_type(time_column).name == "TIMESTAMP":
            frame = frame.with_columns(pl.col(time_column).cast(pl.Datetime("us")))
        yield conform(frame, self.stream, f"rate of {self.stream.name}", start + 1)
