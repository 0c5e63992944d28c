"""Polars as a limit: all input at once, one lazy frame, two threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ["POLARS_MAX_THREADS"] = "2"  # read when Polars is loaded
sys.path.append(str(Path(__file__).resolve().parents[1]))

import harness
import nexmark
import polars as pl
from harness import Job
from works import WINDOW_US as W

Reader = Callable[[str], pl.LazyFrame]


def start() -> None:
    return None


def version() -> str:
    return pl.__version__


def _side(read: Reader, stream: str) -> pl.LazyFrame:
    return read(stream).select("k", pl.col("t").alias(f"{stream}t"), pl.col("v").alias(f"{stream}v"))


def _near(left: str, right: str) -> pl.Expr:
    return (pl.col(left) - pl.col(right)).abs() < W


def join(read: Reader) -> pl.LazyFrame:
    pairs = _side(read, "a").join(_side(read, "b"), on="k").filter(_near("at", "bt"))
    return pairs.select("k", "av", "bv")


def join3(read: Reader) -> pl.LazyFrame:
    pairs = _side(read, "a").join(_side(read, "b"), on="k").filter(_near("at", "bt"))
    triples = pairs.join(_side(read, "c"), on="k").filter(_near("at", "ct") & _near("bt", "ct"))
    return triples.select("k", "av", "bv", "cv")


def aggregate(read: Reader) -> pl.LazyFrame:
    windows = read("a").sort("t").rolling(index_column="t", period=f"{W}i", closed="right", group_by="k")
    return windows.agg(pl.len().alias("n"), pl.col("v").sum().alias("s")).select("k", "t", "n", "s")


def distinct(read: Reader) -> pl.LazyFrame:
    gap = (pl.col("t").diff() > W).fill_null(False)
    marked = read("a").sort("k", "t").with_columns(gap.cum_sum().over("k").alias("island"))
    return (
        marked.group_by("k", "island").agg(pl.col("t").min(), (pl.col("t").max() + W).alias("u")).select("k", "t", "u")
    )


def filter_(read: Reader) -> pl.LazyFrame:
    return read("a").filter(pl.col("v") < 100_000).select("k", (pl.col("v") * 2).alias("w"))


def _runner(query: Callable[[Reader], pl.LazyFrame]) -> Callable[[Job, Path], None]:
    def run(job: Job, place: Path) -> None:
        scan = pl.scan_parquet if job.kind == "parquet" else pl.scan_csv
        query(lambda stream: scan(f"{job.data}/pieces/{stream}/*.{job.kind}")).sink_parquet(place / "out.parquet")

    return run


QUERIES = {"join": join, "join3": join3, "aggregate": aggregate, "distinct": distinct, "filter": filter_}
QUERIES |= nexmark.QUERIES
RUNS = {name: _runner(query) for name, query in QUERIES.items()}
PACED: dict[str, object] = {}

if __name__ == "__main__":
    harness.main(sys.modules["__main__"])
