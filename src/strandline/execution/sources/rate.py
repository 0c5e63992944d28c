"""A generated stream: so many rows per second, the same rows in every run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from strandline.catalog import BaseStream
from strandline.errors import Span
from strandline.execution.kernels.hashing import mix
from strandline.execution.sources.base import Arguments, Chunk, Source
from strandline.execution.sources.clock import first_start
from strandline.execution.sources.conform import conform
from strandline.plugins import Traits
from strandline.temporal import SECOND, instant
from strandline.types import BIGINT, DOUBLE, is_numeric

_STREAM_SEEDS = 0xA24BAED4963EE407
_ALL = 2**62  # rows: more than anybody takes


class RateSource(Source):
    """`rate(rows_per_second => 100, total => NULL, start => NULL, keys => 10, seed => 0, pace => true)`.

    Row n has time `start + n / rows_per_second`. A column named `value` is n, `key` is a number below `keys`, `random`
    a number in [0, 1); both are drawn by a hash of (seed, n). Rows appear as their time comes, or as fast as they are
    taken with `pace => false`. Without `start` the clock at the first start counts, and is remembered.
    """

    traits = Traits(True, True, True, "row n is a function of n and the seed")

    def __init__(self, stream: BaseStream, directory: Path | None) -> None:
        super().__init__(stream, directory)
        self._began: int | None = None

    def check(self, span: Span | None) -> None:
        self._options(span)
        arguments = Arguments(self.stream, span)
        for name, kind in self.stream.columns:
            if name == self.stream.time_column:
                continue
            if name not in ("value", "key", "random"):
                raise arguments.error(f'rate() has no column "{name}"; it has value, key, random and the time')
            if not is_numeric(kind):
                raise arguments.error(
                    f'column "{name}" of rate() is {DOUBLE if name == "random" else BIGINT}, not {kind}'
                )

    def _options(self, span: Span | None = None) -> tuple[float, int | None, str | None, int, int, bool]:
        arguments = Arguments(self.stream, span)
        rate = arguments.option("rows_per_second", (int, float, str), 100)
        total = arguments.option("total", int, None)
        start = arguments.option("start", str, None)
        keys = arguments.option("keys", int, 10)
        seed = arguments.option("seed", int, 0)
        pace = arguments.option("pace", bool, True)
        arguments.done(most=0)
        try:
            per_second = float(rate)  # type: ignore[arg-type]
            if start is not None:
                instant(str(start))
        except ValueError as error:
            raise arguments.error(f"an option of rate() cannot be read: {error}") from None
        if per_second <= 0 or (isinstance(keys, int) and keys <= 0):
            raise arguments.error("rows_per_second and keys of rate() must be greater than 0")
        assert isinstance(keys, int) and isinstance(seed, int) and not isinstance(total, str | float | list)
        return per_second, total, None if start is None else str(start), keys, seed, bool(pace)

    def advance(self, position: int, limit_rows: int) -> tuple[int, bool]:
        per_second, total, _, _, _, pace = self._options()
        end = position + limit_rows
        if pace:
            elapsed = time.time() * SECOND - self._clock_start()
            end = min(end, int(elapsed * per_second / SECOND))
        if total is not None:
            end = min(end, total)
        end = max(end, position)
        return end, end == total

    def rows_left(self, position: int) -> int | None:
        _, total, _, _, _, pace = self._options()
        return self.advance(position, _ALL)[0] - position if pace or total is not None else None

    def read(self, start: int, end: int, columns: frozenset[str]) -> Iterator[Chunk]:
        per_second, _, _, keys, seed, _ = self._options()
        number = np.arange(start, end, dtype=np.int64)
        drawn = mix(mix(number.view(np.uint64)) ^ np.uint64(seed * _STREAM_SEEDS % 2**64))
        made = {
            "value": number,
            "key": (drawn % np.uint64(keys)).astype(np.int64),
            "random": (mix(drawn) >> np.uint64(11)).astype(np.float64) / 2.0**53,
        }
        time_column = self.stream.time_column
        if time_column is not None:
            made[time_column] = self._time_start() + np.floor(number * (SECOND / per_second)).astype(np.int64)
        frame = pl.DataFrame({name: made[name] for name, _ in self.stream.columns})
        if time_column is not None and self.stream.column_type(time_column).name == "TIMESTAMP":
            frame = frame.with_columns(pl.col(time_column).cast(pl.Datetime("us")))
        yield conform(frame, self.stream, f"rate of {self.stream.name}", start + 1)

    def _time_start(self) -> int:
        start = self._options()[2]
        return instant(start) if start is not None else self._clock_start()

    def _clock_start(self) -> int:
        """When the first start of the query was; a replay must see the same times."""
        if self._began is None:
            self._began = first_start(self.directory)
        return self._began
