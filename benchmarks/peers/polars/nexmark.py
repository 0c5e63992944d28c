"""NEXMark in Polars."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl

Reader = Callable[[str], pl.LazyFrame]


def _end(seconds: int) -> pl.Expr:
    """The end of the window that a row falls into, of those that tile time."""
    return ((pl.col("date_time") // (seconds * 1_000_000) + 1) * seconds * 1_000_000).alias("u")


def q0(read: Reader) -> pl.LazyFrame:
    return read("bid")


def q1(read: Reader) -> pl.LazyFrame:
    euro = (pl.col("price") * 0.908).alias("euro")
    return read("bid").select("auction", "bidder", euro, "date_time", "extra")


def q2(read: Reader) -> pl.LazyFrame:
    return read("bid").filter(pl.col("auction") % 123 == 0).select("auction", "price")


def q3(read: Reader) -> pl.LazyFrame:
    people = read("person").filter(pl.col("state").is_in(["OR", "ID", "CA"]))
    sold = read("auction").filter(pl.col("category") == 10).select("id", "seller")
    return sold.join(people, left_on="seller", right_on="id").select("name", "city", "state", "id")


def _won(read: Reader) -> pl.LazyFrame:
    bids = read("bid").select("auction", "price", pl.col("date_time").alias("at"))
    made = read("auction").join(bids, left_on="id", right_on="auction")
    in_time = made.filter((pl.col("at") >= pl.col("date_time")) & (pl.col("at") < pl.col("expires")))
    return in_time.group_by("id", "category", "seller", "expires").agg(pl.col("price").max().alias("final"))


def q4(read: Reader) -> pl.LazyFrame:
    return _won(read).group_by("category").agg(pl.col("final").mean().alias("average"))


def q5(read: Reader) -> pl.LazyFrame:
    """A bid lies in five windows: the one that ends next, and the four that end 2 s after another."""
    windows = [read("bid").select("auction", _end(2) + n * 2_000_000) for n in range(5)]
    counts = pl.concat(windows).group_by("auction", "u").agg(pl.len().alias("num"))
    return counts.filter(pl.col("num") == pl.col("num").max().over("u")).select("auction", "num", "u")


def q6(read: Reader) -> pl.LazyFrame:
    last = _won(read).sort("expires", "id").group_by("seller", maintain_order=True).tail(10)
    return last.group_by("seller").agg(pl.col("final").mean().alias("average"))


def q7(read: Reader) -> pl.LazyFrame:
    best = read("bid").with_columns(_end(10)).filter(pl.col("price") == pl.col("price").max().over("u"))
    return best.select("auction", "price", "bidder", "date_time", "u")


def q8(read: Reader) -> pl.LazyFrame:
    people = read("person").select("id", "name", _end(10))
    sellers = read("auction").select(pl.col("seller").alias("id"), _end(10)).unique()
    return people.join(sellers, on=["id", "u"]).select("id", "name", "u").unique()


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8}
