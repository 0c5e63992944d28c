"""Digests of every function and aggregate of DOUBLEs over many values: the same on every machine.

Run as a program it prints them, and with which features of the processor it computed. `test_same_bits.py` runs it with
fewer features than there are.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt
import polars as pl

import strandline
from strandline.core.types import DOUBLE
from strandline.logical.expressions import Call, ColumnRef, Expression
from strandline.runtime.expressions.compile import evaluate_columns
from strandline.runtime.kernels.hashing import mix

ROWS = 40_000
ONE = (
    "sqrt", "cbrt", "exp", "ln", "log", "log10", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh",
    "tanh", "degrees", "radians", "neg", "abs", "sign", "floor", "ceil", "round", "trunc",
)  # fmt: skip
TWO = ("+", "-", "*", "/", "%", "power", "log", "atan2")
AGGREGATES = {
    "sum": "SUM(x)",
    "avg": "AVG(x)",
    "var_pop": "VAR_POP(x)",
    "var_samp": "VAR_SAMP(x)",
    "stddev_pop": "STDDEV_POP(x)",
    "stddev_samp": "STDDEV_SAMP(x)",
    "median": "MEDIAN(x)",
    "percentile_cont": "PERCENTILE_CONT(0.3) WITHIN GROUP (ORDER BY x)",
    "percentile_disc": "PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY x)",
    "sum_of_exp": "SUM(exp(x / 100))",
    "avg_of_money": "AVG(CAST(x AS DECIMAL(12, 2)))",
}
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 10.0, 100.0, 1000.0, 27.0, -8.0, 3.0, math.pi, 5e-324, 1e308,
    math.inf, -math.inf, math.nan,
)  # fmt: skip


def values(salt: int) -> npt.NDArray[np.float64]:
    """Numbers of daily life and numbers of all sizes, drawn by whole numbers alone."""
    bits = mix(np.arange(ROWS, dtype=np.uint64) + np.uint64(salt * ROWS))
    small = (bits >> np.uint64(12)).astype(np.float64) * 2.0**-50 - 2.0  # from -2 to 2
    kind = np.arange(ROWS) % 4
    drawn = np.select([kind == 0, kind == 1, kind == 2], [small, small * 300.0, small * small], bits.view(np.float64))
    pairs = np.repeat(SPECIAL, len(SPECIAL)) if salt % 2 else np.tile(SPECIAL, len(SPECIAL))
    return np.concatenate([pairs, drawn])


def expressions() -> Iterator[tuple[str, Expression]]:
    x, y = ColumnRef("x", DOUBLE), ColumnRef("y", DOUBLE)
    for name in ONE:
        yield f"{name}(x)", Call(name, (x,), DOUBLE)
    for name in TWO:
        yield f"{name}(x, y)", Call(name, (x, y), DOUBLE)


def digest(column: pl.Series) -> str:
    """Of the bits, NULL apart; all NaNs are one, since IEEE 754 leaves their bits to the machine."""
    numbers = column.fill_null(0.0).to_numpy()
    bits = np.where(np.isnan(numbers), np.nan, numbers).astype("<f8").tobytes()
    return hashlib.sha256(bits + column.is_null().to_numpy().astype("<u1").tobytes()).hexdigest()[:16]


def scalars() -> dict[str, str]:
    frame = pl.DataFrame({"x": values(1), "y": values(2)})
    return {name: digest(evaluate_columns(frame, [("r", each)])["r"]) for name, each in expressions()}


def aggregates() -> dict[str, str]:
    """Over a sliding window, so that values come and go."""
    rows = 3_000
    x = values(3)[len(SPECIAL) ** 2 :][:rows]
    frame = pl.DataFrame({"k": np.arange(rows) % 7, "x": np.where(np.abs(x) < 1e6, x, 1.5), "ts": np.arange(rows)})
    with TemporaryDirectory() as directory, strandline.connect(engine="local", batch_rows=700) as database:
        path = Path(directory) / "rows.parquet"
        frame.write_parquet(path)
        database.sql(f"CREATE STREAM s (k BIGINT, x DOUBLE, ts BIGINT) SOURCE file('{path}') ORDERED BY ts")
        listed = ", ".join(f"{aggregate} AS {name}" for name, aggregate in AGGREGATES.items())
        query = database.sql(f"SELECT k, {listed} FROM s WINDOW(RANGE 200 MICROSECONDS) GROUP BY k")
        query.await_end()
        found = query.results("polars").sort("valid_from", "k")
    return {name: digest(found[name]) for name in AGGREGATES}


def features() -> dict[str, object]:
    """What the libraries believe the processor to be."""
    from numba.core.registry import cpu_target
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    _, name, codes = cpu_target.target_context.codegen().magic_tuple()
    return {
        "numpy": [each for each in __cpu_dispatch__ if __cpu_features__.get(each)],
        "numba": [name, codes],
    }


if __name__ == "__main__":
    json.dump({"scalars": scalars(), "aggregates": aggregates(), "features": features()}, sys.stdout)
