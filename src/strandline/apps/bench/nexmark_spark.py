"""NEXMark queries in Spark's Structured Streaming, each the nearest form that runs, and the reason where none does.

Windows and joins run in append mode, which writes each row once. Results that change with every bid use update mode:
Spark writes the changes after each batch. Watermarks are those of streams in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Streams = Mapping[str, DataFrame]
Kind = Literal["rows", "windows", "one of windows", "last", "sessions"]


@dataclass(frozen=True, slots=True)
class Alone:
    """A query for Spark: `kind` is the way its result is compared with ours, `batches` the number of batches.

    rows      every row once
    windows   the rows are the result right before the time in their column `end`, or one of several ties there
    last      the last row of each key is the result at the end; `keys` are its first columns
    sessions  a row is the last result of a session
    """

    build: Callable[[Streams], DataFrame]
    kind: Kind
    note: str = ""
    keys: int = 0

    @property
    def mode(self) -> str:
        return "update" if self.kind == "last" else "append"

    @property
    def batches(self) -> int:
        return 10 if self.kind == "last" else 1


def _on_time(stream: DataFrame) -> DataFrame:
    return stream.withWatermark("date_time", "0 seconds")


def _micros(time: str) -> Column:
    return F.unix_micros(time).alias("end")


def _q3(s: Streams) -> DataFrame:
    people = s["person"].where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    sold = s["auction"].where("category = 10").select(F.col("id").alias("auction"), "seller")
    return sold.join(people, sold.seller == people.id).select("name", "city", "state", F.col("auction").alias("id"))


def _q5(s: Streams) -> DataFrame:
    hop = F.window("date_time", "10 seconds", "2 seconds")
    counts = _on_time(s["bid"]).groupBy(hop, "auction").agg(F.count("*").alias("num"))
    maxima = counts.groupBy("window").agg(F.max(F.struct("num", "auction")).alias("most"))
    return maxima.select("most.auction", "most.num", _micros("window.end"))


def _q7(s: Streams) -> DataFrame:
    best = F.max_by(F.struct("auction", "price", "bidder", "date_time"), "price").alias("best")
    tumble = _on_time(s["bid"]).groupBy(F.window("date_time", "10 seconds")).agg(best)
    return tumble.select("best.*", _micros("window.end"))


def _q8(s: Streams) -> DataFrame:
    tumble = F.window("date_time", "10 seconds")
    people = _on_time(s["person"]).select("id", "name", tumble.alias("window"))
    sellers = _on_time(s["auction"]).select("seller", tumble.alias("opened"))
    pairs = people.join(sellers, F.expr("id = seller AND window = opened"))
    return pairs.dropDuplicates(["id", "window"]).select("id", "name", _micros("window.end"))


def _q11(s: Streams) -> DataFrame:
    sessions = _on_time(s["bid"]).groupBy(F.session_window("date_time", "10 seconds"), "bidder")
    aggregates = sessions.agg(
        F.count("*").alias("bids"), F.min("date_time").alias("first_bid"), F.max("date_time").alias("l")
    )
    return aggregates.select("bidder", "bids", "first_bid", F.col("l").alias("last_bid"))


def _q12(s: Streams) -> DataFrame:
    clock = s["bid"].withColumn("clock", F.current_timestamp())
    return clock.groupBy("bidder", F.window("clock", "10 seconds")).agg(F.count("*").alias("bids"))


def _q13(s: Streams) -> DataFrame:
    table = s["bid"].sparkSession.range(10_000).withColumnRenamed("id", "value")
    bids = s["bid"].select("auction", "bidder", "price", "date_time")
    return bids.join(F.broadcast(table), F.expr("auction % 10000 = value"))


def _q14(s: Streams) -> DataFrame:
    day = (
        "CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime' "
        "WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS bid_time_type"
    )
    some = s["bid"].where("0.908 * price > 1000000 AND 0.908 * price < 50000000")
    letters = "length(extra) - length(replace(extra, 'c', '')) AS c_counts"
    return some.selectExpr("auction", "bidder", "0.908 * price AS price", day, "date_time", "extra", letters)


# By price.
_CLASSES = {1: "price < 10000", 2: "price >= 10000 AND price < 1000000", 3: "price >= 1000000"}


def _bids() -> list[Column]:
    by_class = [F.count_if(F.expr(c)).alias(f"rank{n}_bids") for n, c in _CLASSES.items()]
    return [F.count("*").alias("total_bids"), *by_class]


def _counts() -> list[Column]:
    counts = _bids()
    for column in ("bidder", "auction"):
        counts.append(F.size(F.collect_set(column)).alias(f"total_{column}s"))
        for n, c in _CLASSES.items():
            counts.append(F.size(F.collect_set(F.when(F.expr(c), F.col(column)))).alias(f"rank{n}_{column}s"))
    return counts


def _q15(s: Streams) -> DataFrame:
    return s["bid"].groupBy(F.to_date("date_time").alias("day")).agg(*_counts())


def _q16(s: Streams) -> DataFrame:
    groups = s["bid"].groupBy("channel", F.to_date("date_time").alias("day"))
    return groups.agg(F.date_trunc("minute", F.max("date_time")).alias("minute"), *_counts())


def _q17(s: Streams) -> DataFrame:
    functions = {"min": F.min, "max": F.max, "avg": F.avg, "sum": F.sum}
    prices = [function("price").alias(f"{name}_price") for name, function in functions.items()]
    return s["bid"].groupBy("auction", F.to_date("date_time").alias("day")).agg(*_bids(), *prices)


def _q18(s: Streams) -> DataFrame:
    columns = ("price", "channel", "url", "date_time", "extra")
    last = s["bid"].groupBy("auction", "bidder").agg(F.max_by(F.struct(*columns), "date_time").alias("last"))
    return last.select("auction", "bidder", "last.*")


def _q19(s: Streams) -> DataFrame:
    bids = F.sort_array(F.collect_list(F.struct("price", "bidder", "date_time")), asc=False)
    return s["bid"].groupBy("auction").agg(F.slice(bids, 1, 10).alias("best"))


def _q20(s: Streams) -> DataFrame:
    bids = s["bid"].select("auction", "bidder", "price", "channel", "url", F.col("date_time").alias("bid_time"))
    sold = s["auction"].where("category = 10").drop("extra")
    return bids.join(sold, bids.auction == sold.id).drop("id")


def _q21(s: Streams) -> DataFrame:
    channel_id = (
        "CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' "
        "THEN '3' ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id"
    )
    return s["bid"].selectExpr("auction", "bidder", "price", "channel", channel_id).where("channel_id IS NOT NULL")


def _q22(s: Streams) -> DataFrame:
    parts = [f"split(url, '/')[{n}] AS dir{n - 2}" for n in (3, 4, 5)]
    return s["bid"].selectExpr("auction", "bidder", "price", "channel", *parts)


def _chosen(*columns: str, where: str = "true") -> Callable[[Streams], DataFrame]:
    return lambda s: s["bid"].where(where).selectExpr(*columns)


_BID = ("auction", "bidder", "price", "date_time", "extra")
_EURO = ("auction", "bidder", "0.908 * price AS price", "date_time", "extra")
_LOG = (*_BID, "date_format(date_time, 'yyyy-MM-dd') AS day", "date_format(date_time, 'HH:mm') AS minute")
_CHANGES = "no aggregate over a join without windows, and no aggregate over another that changes"
_PER_BATCH = "Spark: after each of 10 batches"

SPARK: Final[Mapping[str, Alone | str]] = {
    "q0": Alone(_chosen(*_BID), "rows"),
    "q1": Alone(_chosen(*_EURO), "rows"),
    "q2": Alone(_chosen("auction", "price", where="auction % 123 = 0"), "rows"),
    "q3": Alone(_q3, "rows"),
    "q4": _CHANGES,
    "q5": Alone(_q5, "one of windows", "Spark: one of those that are level"),
    "q6": "no windows over rows",
    "q7": Alone(_q7, "one of windows", "Spark: one of those that are level"),
    "q8": Alone(_q8, "windows"),
    "q9": _CHANGES,
    "q10": Alone(_chosen(*_LOG), "rows"),
    "q11": Alone(_q11, "sessions", "Spark: when a session is over"),
    "q12": Alone(_q12, "last", _PER_BATCH, keys=2),
    "q13": Alone(_q13, "rows"),
    "q14": Alone(_q14, "rows"),
    "q15": Alone(_q15, "last", f"{_PER_BATCH}; distinct by sets", keys=1),
    "q16": Alone(_q16, "last", f"{_PER_BATCH}; distinct by sets", keys=2),
    "q17": Alone(_q17, "last", _PER_BATCH, keys=2),
    "q18": Alone(_q18, "last", _PER_BATCH, keys=2),
    "q19": Alone(_q19, "last", f"{_PER_BATCH}; all bids sorted", keys=1),
    "q20": Alone(_q20, "rows"),
    "q21": Alone(_q21, "rows"),
    "q22": Alone(_q22, "rows"),
}
