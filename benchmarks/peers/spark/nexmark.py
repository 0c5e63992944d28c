"""NEXMark as Spark's streaming SQL can say it; answers about windows are written when the watermark has passed them."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

Reader = Callable[[str], DataFrame]
TUMBLE = ("date_time", "10 seconds")


def _micros(name: str) -> Column:
    return F.unix_micros(name).alias(name)


def q0(read: Reader) -> DataFrame:
    return read("bid").select("auction", "bidder", "price", _micros("date_time"), "extra")


def q1(read: Reader) -> DataFrame:
    return read("bid").select("auction", "bidder", F.expr("0.908 * price AS euro"), _micros("date_time"), "extra")


def q2(read: Reader) -> DataFrame:
    return read("bid").where("auction % 123 = 0").select("auction", "price")


def q3(read: Reader) -> DataFrame:
    people = read("person").where("state IN ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    sold = read("auction").where("category = 10").select(F.col("id").alias("auction"), "seller")
    return sold.join(people, sold.seller == people.id).select("name", "city", "state", F.col("auction").alias("id"))


def _highest(rows: DataFrame, by: str, *columns: str) -> DataFrame:
    """Of each window the rows that are level at the top; an aggregate of Spark's keeps one, so a list keeps all."""
    kept = rows.groupBy("window").agg(F.collect_list(F.struct(*columns)).alias("rows"), F.max(by).alias("most"))
    top = kept.select("window", F.explode(F.expr(f"filter(rows, r -> r.{by} = most)")).alias("row"))
    return top.select("row.*", F.unix_micros("window.end").alias("u"))


def q5(read: Reader) -> DataFrame:
    hops = read("bid").groupBy(F.window("date_time", "10 seconds", "2 seconds"), "auction")
    return _highest(hops.agg(F.count("*").alias("num")), "num", "auction", "num")


def q7(read: Reader) -> DataFrame:
    bids = read("bid").withColumn("window", F.window(*TUMBLE)).withColumn("date_time", F.unix_micros("date_time"))
    return _highest(bids, "price", "auction", "price", "bidder", "date_time")


def q8(read: Reader) -> DataFrame:
    people = read("person").select("id", "name", F.window(*TUMBLE).alias("window"))
    sellers = read("auction").select("seller", F.window(*TUMBLE).alias("opened"))
    pairs = people.join(sellers, F.expr("id = seller AND window = opened"))
    return pairs.dropDuplicates(["id", "window"]).select("id", "name", F.unix_micros("window.end").alias("u"))


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q3": q3, "q5": q5, "q7": q7, "q8": q8}
UNABLE = {
    "q4": "Spark has no aggregate over another that changes",
    "q6": "Spark has no windows over rows in a stream",
}
