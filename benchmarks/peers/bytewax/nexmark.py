"""NEXMark in Bytewax: logic per key in Python; windows are told at the end of the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Stream
from bytewax.operators import StatefulBatchLogic

Row = tuple[Any, ...]
SECOND = 1_000_000


class Collect(StatefulBatchLogic[Row, Row, None]):
    """Takes rows of a key; tells at the end."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def take(self, rows: list[Row]) -> Iterable[Row]:
        self.rows += rows
        return ()

    def told(self) -> Iterable[Row]:
        return ()

    def on_batch(self, values: list[Row]) -> tuple[list[Row], bool]:
        return list(self.take(values)), StatefulBatchLogic.RETAIN

    def on_eof(self) -> tuple[list[Row], bool]:
        return list(self.told()), StatefulBatchLogic.DISCARD

    def snapshot(self) -> None:
        return None


def _keyed(name: str, rows: Stream[Row], key: Callable[[Row], Any], logic: type[Collect]) -> Stream[Row]:
    keyed = op.map(f"{name}-key", rows, lambda row: (str(key(row)), row))
    return op.map(f"{name}-values", op.stateful_batch(name, keyed, lambda _: logic()), lambda pair: pair[1])


def q0(bid: Stream[Row]) -> Stream[Row]:
    return bid


def q1(bid: Stream[Row]) -> Stream[Row]:
    return op.flat_map_batch("euro", bid, lambda rows: [(a, b, price * 0.908, t, x) for a, b, price, t, x in rows])


def q2(bid: Stream[Row]) -> Stream[Row]:
    return op.flat_map_batch("some", bid, lambda rows: [(row[0], row[2]) for row in rows if row[0] % 123 == 0])


def _tagged(name: str, rows: Stream[Row], keep: Callable[[Row], bool] = lambda row: True) -> Stream[Row]:
    return op.flat_map_batch(f"tag-{name}", rows, lambda batch: [(name, *row) for row in batch if keep(row)])


class Sellers(Collect):
    def __init__(self) -> None:
        self.people: list[Row] = []
        self.sold: list[int] = []

    def take(self, rows: list[Row]) -> Iterable[Row]:
        found = []
        for row in rows:
            if row[0] == "person":
                self.people.append(row[2:5])
                found += [(*row[2:5], sold) for sold in self.sold]
            else:
                self.sold.append(row[1])
                found += [(*person, row[1]) for person in self.people]
        return found


def q3(person: Stream[Row], auction: Stream[Row]) -> Stream[Row]:
    people = _tagged("person", person, lambda row: row[3] in ("OR", "ID", "CA"))
    sold = _tagged("auction", auction, lambda row: row[2] == 10)
    return _keyed("sellers", op.merge("both", people, sold), lambda r: r[1] if r[0] == "person" else r[2], Sellers)


class Won(Collect):
    """The auction of a key and its bids: what it was sold for. Bids may be read before their auction."""

    def __init__(self) -> None:
        self.auction: Row | None = None
        self.bids: list[tuple[int, int]] = []

    def take(self, rows: list[Row]) -> Iterable[Row]:
        for row in rows:
            if row[0] == "auction":
                self.auction = row[1:]
            else:
                self.bids.append((row[3], row[4]))
        return ()

    def told(self) -> Iterable[Row]:
        if self.auction is not None:
            _, _, _, since, until = self.auction
            prices = [price for price, at in self.bids if since <= at < until]
            if prices:
                yield (*self.auction, max(prices))


def _won(auction: Stream[Row], bid: Stream[Row]) -> Stream[Row]:
    both = op.merge("both", _tagged("auction", auction), _tagged("bid", bid))
    return _keyed("won", both, lambda row: row[1], Won)


class Average(Collect):
    def told(self) -> Iterable[Row]:
        yield self.rows[0][2], sum(row[5] for row in self.rows) / len(self.rows)


def q4(auction: Stream[Row], bid: Stream[Row]) -> Stream[Row]:
    return _keyed("average", _won(auction, bid), lambda row: row[2], Average)


class LastTen(Collect):
    def told(self) -> Iterable[Row]:
        last = sorted(self.rows, key=lambda row: (row[4], row[0]))[-10:]
        yield last[0][1], sum(row[5] for row in last) / len(last)


def q6(auction: Stream[Row], bid: Stream[Row]) -> Stream[Row]:
    return _keyed("last-ten", _won(auction, bid), lambda row: row[1], LastTen)


class Counts(Collect):
    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.auction = 0

    def take(self, rows: list[Row]) -> Iterable[Row]:
        self.auction = rows[0][0]
        for row in rows:
            first = row[3] // (2 * SECOND) + 1
            for number in range(first, first + 5):
                self.counts[number * 2 * SECOND] += 1
        return ()

    def told(self) -> Iterable[Row]:
        return [(self.auction, count, end) for end, count in self.counts.items()]


class Most(Collect):
    """The rows whose second column is the highest."""

    def take(self, rows: list[Row]) -> Iterable[Row]:
        seen = self.rows + rows
        most = max(row[1] for row in seen)
        self.rows = [row for row in seen if row[1] == most]
        return ()

    def told(self) -> Iterable[Row]:
        return self.rows


def q5(bid: Stream[Row]) -> Stream[Row]:
    return _keyed("most", _keyed("counts", bid, lambda row: row[0], Counts), lambda row: row[2], Most)


def q7(bid: Stream[Row]) -> Stream[Row]:
    def windowed(rows: list[Row]) -> list[Row]:
        return [(a, price, bidder, t, (t // (10 * SECOND) + 1) * 10 * SECOND) for a, bidder, price, t, _ in rows]

    return _keyed("most", op.flat_map_batch("window", bid, windowed), lambda row: row[4], Most)


class NewSellers(Collect):
    def __init__(self) -> None:
        self.person: Row | None = None
        self.sells = self.done = False

    def take(self, rows: list[Row]) -> Iterable[Row]:
        for row in rows:
            if len(row) == 3:
                self.person = row
            else:
                self.sells = True
        if self.person is None or not self.sells or self.done:
            return ()
        self.done = True
        return (self.person,)


def q8(person: Stream[Row], auction: Stream[Row]) -> Stream[Row]:
    def end(t: int) -> int:
        return (t // (10 * SECOND) + 1) * 10 * SECOND

    people = op.flat_map_batch("people", person, lambda rows: [(row[0], row[1], end(row[4])) for row in rows])
    sellers = op.flat_map_batch("opened", auction, lambda rows: [(row[1], end(row[3])) for row in rows])
    return _keyed("new", op.merge("both", people, sellers), lambda row: (row[0], row[-1]), NewSellers)


QUERIES: dict[str, Callable[..., Stream[Row]]] = {
    "q0": q0, "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q6": q6, "q7": q7, "q8": q8,
}  # fmt: skip
