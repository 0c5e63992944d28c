"""Rate source: a generated stream of a fixed rate, the same rows in every run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.connectors.sources.base import Chunk, Source, SourceArguments
from strandline.connectors.sources.clock import first_start, now
from strandline.connectors.sources.conversion import conform
from strandline.connectors.traits import Traits
from strandline.core.errors import Span
from strandline.core.temporal import SECOND, instant
from strandline.core.types import BIGINT, DOUBLE, is_numeric
from strandline.logical.catalog import BaseStream
from strandline.runtime.kernels.hashing import mix

_STREAM_SEEDS = 0xA24BAED4963EE407
_ALL = 2**62  # rows: practically unbounded


@dataclass(frozen=True, slots=True)
class _Options:
    rate: float
    total: int | None
    start: str | None
    keys: tuple[int, ...]
    seed: int
    pace: bool
    burst: float
    burst_seconds: float

    def rows_by(self, seconds: float) -> int:
        """Number of rows after this many seconds."""
        early = min(seconds, self.burst_seconds)
        return int(early * self.rate * self.burst + (seconds - early) * self.rate)

    def instants_of(self, number: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Times of rows, in microseconds from the beginning."""
        fast = self.rate * self.burst
        early = np.minimum(number, self.burst_seconds * fast)
        instants: npt.NDArray[np.int64] = np.floor(
            early * (SECOND / fast) + (number - early) * (SECOND / self.rate)
        ).astype(np.int64)
        return instants


class RateSource(Source):
    """`rate(rows_per_second => 100, total => NULL, start => NULL, keys => 10, seed => 0, pace => true)`.

    Row n has time `start + n / rows_per_second`. A column named `value` is n, `key` is a number below `keys`, `random`
    a number in [0, 1); both are drawn by a hash of (seed, n). With `keys => (10, 500)` there are `key` and `key2`, each
    below its number. Rows appear as their time comes, or as fast as they are taken with `pace => false`. Without
    `start` it is the clock at the first start, which is saved. With `burst => 5, burst_seconds => 60` they come five
    times as fast in the first minute.
    """

    traits = Traits(True, True, True, "row n is a function of n and the seed")

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        self._began: int | None = None

    def check(self, span: Span | None) -> None:
        options = self._options(span)
        arguments = SourceArguments(self.stream.source, span)
        keys = _key_names(options)
        for name, kind in self.stream.columns:
            if name == self.stream.time_column:
                continue
            if name not in ("value", "random", *keys):
                raise arguments.error(
                    f'rate() has no column "{name}"; it has value, random, {", ".join(keys)} and the time'
                )
            if not is_numeric(kind):
                raise arguments.error(
                    f'column "{name}" of rate() is {DOUBLE if name == "random" else BIGINT}, not {kind}'
                )

    def _options(self, span: Span | None = None) -> _Options:
        arguments = SourceArguments(self.stream.source, span)
        rate = arguments.option("rows_per_second", (int, float, str), 100)
        total = arguments.option("total", int, None)
        start = arguments.option("start", str, None)
        keys = arguments.option("keys", (int, list), 10)
        seed = arguments.option("seed", int, 0)
        pace = arguments.option("pace", bool, True)
        burst = arguments.option("burst", (int, float, str), 1)
        burst_seconds = arguments.option("burst_seconds", (int, float, str), 0)
        arguments.done(most=0)
        try:
            numbers = [float(item) for item in (rate, burst, burst_seconds)]  # type: ignore[arg-type]
            listed = tuple(int(item) for item in (keys if isinstance(keys, list) else [keys]))  # type: ignore[arg-type]
            if start is not None:
                instant(str(start))
        except (ValueError, TypeError) as error:
            raise arguments.error(f"invalid option of rate(): {error}") from None
        if numbers[0] <= 0 or numbers[1] <= 0 or numbers[2] < 0 or not listed or min(listed) <= 0:
            raise arguments.error("rows_per_second, keys and burst of rate() must be greater than 0")
        assert isinstance(seed, int) and (total is None or isinstance(total, int))
        begin = None if start is None else str(start)
        return _Options(numbers[0], total, begin, listed, seed, bool(pace), numbers[1], numbers[2])

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        options = self._options()
        end = position + limit_rows
        if options.pace:
            end = min(end, options.rows_by((now() - self._clock_start()) / SECOND))
        if options.total is not None:
            end = min(end, options.total)
        end = max(end, position)
        return end, end == options.total

    def rows_left(self, position: int) -> int | None:
        options = self._options()
        return self.advance(position, _ALL)[0] - position if options.pace or options.total is not None else None

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        options = self._options()
        number = np.arange(start, end, dtype=np.int64)
        drawn = mix(mix(number.view(np.uint64)) ^ np.uint64(options.seed * _STREAM_SEEDS % 2**64))
        random = mix(drawn)
        made = {"value": number, "random": (random >> np.uint64(11)).astype(np.float64) / 2.0**53}
        for name, cardinality in zip(_key_names(options), options.keys, strict=True):
            made[name] = (drawn % np.uint64(cardinality)).astype(np.int64)
            drawn = random = mix(random)
        time_column = self.stream.time_column
        if time_column is not None:
            made[time_column] = self._time_start() + options.instants_of(number)
        frame = pl.DataFrame({name: made[name] for name, _ in self.stream.columns})
        if time_column is not None and self.stream.column_type(time_column).name == "TIMESTAMP":
            frame = frame.with_columns(pl.col(time_column).cast(pl.Datetime("us")))
        yield conform(frame, self.stream, f"rate of {self.stream.name}", start + 1)

    def _time_start(self) -> int:
        start = self._options().start
        return instant(start) if start is not None else self._clock_start()

    def _clock_start(self) -> int:
        """Time of the first start of the query; a replay must see the same times."""
        if self._began is None:
            self._began = first_start(self.directory)
        return self._began


def _key_names(options: _Options) -> list[str]:
    return [f"key{number or ''}" for number in (0, *range(2, len(options.keys) + 1))]
