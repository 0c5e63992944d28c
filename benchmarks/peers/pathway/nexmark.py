"""NEXMark in Pathway."""

from __future__ import annotations

from collections.abc import Callable

import pathway as pw

Reader = Callable[[str], pw.Table]
SECOND = 1_000_000


def q0(read: Reader) -> pw.Table:
    return read("bid")


def q1(read: Reader) -> pw.Table:
    bid = read("bid")
    return bid.select(bid.auction, bid.bidder, euro=bid.price * 0.908, date_time=bid.date_time, extra=bid.extra)


def q2(read: Reader) -> pw.Table:
    bid = read("bid")
    return bid.filter(bid.auction % 123 == 0).select(pw.this.auction, pw.this.price)


def q3(read: Reader) -> pw.Table:
    person, auction = read("person"), read("auction")
    people = person.filter((person.state == "OR") | (person.state == "ID") | (person.state == "CA"))
    sold = auction.filter(auction.category == 10)
    joined = sold.join(people, sold.seller == people.uid)
    return joined.select(people.name, people.city, people.state, sold.uid)


def _won(read: Reader) -> pw.Table:
    auction, bid = read("auction"), read("bid")
    made = auction.join(bid, auction.uid == bid.auction)
    made = made.select(
        auction.uid,
        auction.category,
        auction.seller,
        auction.expires,
        bid.price,
        at=bid.date_time,
        since=auction.date_time,
    )
    in_time = made.filter((made.at >= made.since) & (made.at < made.expires))
    groups = in_time.groupby(in_time.uid, in_time.category, in_time.seller, in_time.expires)
    return groups.reduce(
        in_time.uid, in_time.category, in_time.seller, in_time.expires, final=pw.reducers.max(in_time.price)
    )


def q4(read: Reader) -> pw.Table:
    won = _won(read)
    return won.groupby(won.category).reduce(won.category, average=pw.reducers.avg(won.final))


@pw.udf(deterministic=True)
def last_ten(sold: tuple[tuple[int, int, int], ...]) -> float:
    prices = [price for _, _, price in sold[-10:]]
    return sum(prices) / len(prices)


def q6(read: Reader) -> pw.Table:
    won = _won(read)
    sold = pw.reducers.sorted_tuple(pw.make_tuple(won.expires, won.uid, won.final))
    sellers = won.groupby(won.seller).reduce(won.seller, sold=sold)
    return sellers.select(pw.this.seller, average=last_ten(pw.this.sold))


def q5(read: Reader) -> pw.Table:
    bid = read("bid")
    hops = pw.temporal.sliding(hop=2 * SECOND, duration=10 * SECOND, origin=0)
    counts = bid.windowby(bid.date_time, window=hops, instance=bid.auction).reduce(
        auction=pw.this._pw_instance, u=pw.this._pw_window_end, num=pw.reducers.count()
    )
    most = counts.groupby(counts.u).reduce(counts.u, most=pw.reducers.max(counts.num))
    joined = counts.join(most, counts.u == most.u, counts.num == most.most)
    return joined.select(counts.auction, counts.num, counts.u)


def q7(read: Reader) -> pw.Table:
    bid = read("bid")
    bid = bid.with_columns(u=(bid.date_time // (10 * SECOND) + 1) * 10 * SECOND)
    most = bid.groupby(bid.u).reduce(bid.u, most=pw.reducers.max(bid.price))
    joined = bid.join(most, bid.u == most.u, bid.price == most.most)
    return joined.select(bid.auction, bid.price, bid.bidder, bid.date_time, bid.u)


def q8(read: Reader) -> pw.Table:
    person, auction = read("person"), read("auction")
    tumble = pw.temporal.tumbling(duration=10 * SECOND, origin=0)
    pairs = person.window_join(auction, person.date_time, auction.date_time, tumble, person.uid == auction.seller)
    pairs = pairs.select(person.uid, person.name, u=pw.this._pw_window_end)
    return pairs.groupby(pairs.uid, pairs.name, pairs.u).reduce(pairs.uid, pairs.name, pairs.u)


QUERIES = {"q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8}
