"""The five queries of the paper in its three strategies: touches per 1,000 tuples, tuples stored, facts of the trace.

- NT: every window is stored and emits a negative tuple for every end; states are hash tables.
- DIRECT: states are lists; what has ended is found by reading them. It has no plan for a negation.
- UPA(n): FIFO inputs are lists, results are n partitions by end, δ* instead of δ. Above a negation whose results often
  end early, negative tuples (Q5); Q3 shows what partitions cost there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from strandline.apps.papers.golab_ozsu.results import Elements, distinct, join, negate
from strandline.apps.papers.golab_ozsu.touches import MeasuredSpan
from strandline.apps.papers.golab_ozsu.trace import Integers, Link, Trace

WINDOWS: Final = (2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)  # units
PARTITIONS: Final = (10, 50)


@dataclass(frozen=True, slots=True)
class Touches:
    """Touches per 1,000 tuples, and the mean number of tuples that are stored."""

    per_1000: float
    stored: float


Strategies = dict[str, Touches]


@dataclass(frozen=True, slots=True)
class Facts:
    """What the paper states of its trace, over one window length."""

    window: int
    sources: float  # distinct ones in a window of the first link
    pairs: float
    ftp_result: float  # result of Q1 as a multiple of an input
    telnet_result: float  # result of Q1 as a multiple of the one for ftp
    premature: float  # share of the results of Q3 that end early


class LinkWindows:
    """Links of a trace over windows of one length. Links take turns: a tuple's number is its time."""

    def __init__(self, trace: Trace, window: int, links: int) -> None:
        self.units = units_needed(window)
        self.links, self.window = trace.first(self.units).links[:links], window * links
        self.measured = MeasuredSpan(self.window, self.units * links, self.window)

    def link(self, number: int, key: Callable[[Link], Integers] = lambda link: link.source) -> Elements:
        start = np.arange(self.units, dtype=np.int64) * len(self.links) + number
        return Elements(key(self.links[number]), start, start + self.window)

    def protocol(self, number: int, name: str) -> Elements:
        return self.link(number).where(self.links[number].protocol == name)

    def touches(self, total: float, stored: float) -> Touches:
        return Touches(total / (self.measured.end - self.measured.begin) * 1000, stored)


def units_needed(window: int) -> int:
    """A window is filled, then touches are counted for as long again: every result of the first window ends then."""
    return 2 * window


def q1(trace: Trace, window: int, protocol: str) -> Strategies:
    """A join of two links on the source, of one protocol."""
    setting = LinkWindows(trace, window, links=2)
    counted, links = setting.measured, [setting.link(0), setting.link(1)]
    left, right = setting.protocol(0, protocol), setting.protocol(1, protocol)
    view, updates = join(left, right), np.concatenate((left.start, right.start))
    filters = sum(counted.filter_touches(link, negative=False) for link in links)
    negative = counted.window_touches(*links) + sum(counted.filter_touches(link, negative=True) for link in links)
    lists = filters + counted.join_lists(left, right)
    lazily = counted.mean_size(left, right, lazy=True) + counted.mean_size(view)
    found = {
        "NT": setting.touches(
            negative + counted.join_negative(left, right) + counted.view_in_hash(view),
            counted.mean_size(*links, left, right, view),
        ),
        "DIRECT": setting.touches(lists + counted.view_in_list(view, updates), lazily),
    }
    for n in PARTITIONS:
        found[f"UPA({n})"] = setting.touches(lists + counted.view_in_partitions(view, updates, n), lazily)
    return found


def q2(trace: Trace, window: int, pairs: bool) -> Strategies:
    """The distinct sources of a link, or pairs of source and destination."""
    setting = LinkWindows(trace, window, links=1)
    counted = setting.measured
    rows = setting.link(0, lambda link: link.pair) if pairs else setting.link(0)
    found = distinct(rows)
    output = counted.mean_size(found.output)
    strategies = {
        "NT": setting.touches(
            counted.window_touches(rows) + counted.distinct_negative(rows, found),
            counted.mean_size(rows, rows) + output,
        ),
        "DIRECT": setting.touches(counted.distinct_direct(rows, found), counted.mean_size(rows, lazy=True) + output),
    }
    stored = output + counted.mean_size(found.auxiliary)
    for n in PARTITIONS:
        strategies[f"UPA({n})"] = setting.touches(counted.distinct_auxiliary(rows, found, n), stored)
    return strategies


def q3(trace: Trace, window: int) -> Strategies:
    """The first link without the second, by source: as many tuples as it has more of."""
    setting = LinkWindows(trace, window, links=2)
    counted, left, right = setting.measured, setting.link(0), setting.link(1)
    found = negate(left, right)
    updates = np.concatenate((left.start, right.start))
    negative = counted.window_touches(left, right) + counted.negation_negative(left, right, found)
    inputs = counted.mean_size(left, right)
    result = counted.mean_size(found.result)
    strategies = {"NT": setting.touches(negative + counted.view_in_hash(found.result), 2 * inputs + result)}
    direct = counted.negation_direct(left, right, found)
    for n in PARTITIONS:
        touches = direct + counted.result_in_partitions(found, updates, n)
        strategies[f"UPA({n})"] = setting.touches(touches, inputs + result)
    return strategies


def q4(trace: Trace, window: int) -> Strategies:
    """A join of the distinct sources of two links."""
    setting = LinkWindows(trace, window, links=2)
    counted, links = setting.measured, [setting.link(0), setting.link(1)]
    found = [distinct(link) for link in links]
    left, right = found[0].output, found[1].output
    view, updates = join(left, right), np.concatenate((left.start, right.start))
    inputs = list(zip(links, found, strict=True))
    negative = counted.window_touches(*links) + sum(counted.distinct_negative(*pair) for pair in inputs)
    direct = sum(counted.distinct_direct(*pair) for pair in inputs)
    outputs, shown = counted.mean_size(left, right), counted.mean_size(view)
    strategies = {
        "NT": setting.touches(
            negative + counted.join_negative(left, right) + counted.view_in_hash(view),
            2 * counted.mean_size(*links) + 2 * outputs + shown,
        ),
        "DIRECT": setting.touches(
            direct + counted.join_lists(left, right, in_order=False) + counted.view_in_list(view, updates),
            counted.mean_size(*links, left, right, lazy=True) + outputs + shown,
        ),
    }
    stored = outputs + counted.mean_size(found[0].auxiliary, found[1].auxiliary) + shown
    for n in PARTITIONS:
        touches = sum(counted.distinct_auxiliary(*pair, n) for pair in inputs) + counted.join_shared(left, right)
        touches += counted.view_in_partitions(view, updates, n)
        strategies[f"UPA({n})"] = setting.touches(touches, stored)
    return strategies


def q5(trace: Trace, window: int) -> Strategies:
    """A join of the first link with the ftp tuples of the third, without the second, by source; or the join after the
    negation. By the paper's negation these are different queries: it counts, and the join multiplies."""
    setting = LinkWindows(trace, window, links=3)
    counted, links = setting.measured, [setting.link(n) for n in range(3)]
    first, second, ftp = links[0], links[1], setting.protocol(2, "ftp")
    negative = counted.window_touches(*links) + counted.filter_touches(links[2], negative=True)
    windows = counted.mean_size(*links)
    joined = join(first, ftp)
    up = negate(joined, second)
    down = negate(first, second)
    result = join(down.result, ftp)
    strategies = {
        "NT": setting.touches(
            negative
            + counted.join_negative(first, ftp)
            + counted.negation_negative(joined, second, up)
            + counted.view_in_hash(up.result),
            windows + counted.mean_size(first, ftp, joined, second, up.result),
        ),
        "NT(join up)": setting.touches(
            negative
            + counted.negation_negative(first, second, down)
            + counted.join_negative(down.result, ftp)
            + counted.view_in_hash(result),
            windows + counted.mean_size(first, second, down.result, ftp, result),
        ),
    }
    direct = counted.filter_touches(links[2], negative=False) + counted.join_lists(first, ftp)
    stored = counted.mean_size(first, ftp, lazy=True) + counted.mean_size(joined, second, up.result)
    for n in PARTITIONS:
        touches = direct + counted.negation_direct(joined, second, up, n) + counted.view_in_hash(up.result)
        strategies[f"UPA({n})"] = setting.touches(touches, stored)
    return strategies


QUERIES: Final[dict[str, Callable[[Trace, int], Strategies]]] = {
    "Q1 ftp": lambda trace, window: q1(trace, window, "ftp"),
    "Q1 telnet": lambda trace, window: q1(trace, window, "telnet"),
    "Q2 sources": lambda trace, window: q2(trace, window, pairs=False),
    "Q2 pairs": lambda trace, window: q2(trace, window, pairs=True),
    "Q3": q3,
    "Q4": q4,
    "Q5": q5,
}


def facts(trace: Trace, window: int) -> Facts:
    setting = LinkWindows(trace, window, links=2)
    counted = setting.measured
    views = {}
    for name in ("ftp", "telnet"):
        left, right = setting.protocol(0, name), setting.protocol(1, name)
        views[name] = (counted.mean_size(join(left, right)), counted.mean_size(left, right) / 2)
    negation = negate(setting.link(0), setting.link(1))
    link = trace.links[0].first(window)
    return Facts(
        window,
        len(np.unique(link.source)),
        len(np.unique(link.pair)),
        views["ftp"][0] / max(views["ftp"][1], 1),
        views["telnet"][0] / max(views["ftp"][0], 1),
        float(negation.premature[counted.within(negation.result.end)].mean()),
    )


def count(trace: Trace, windows: Sequence[int]) -> dict[str, dict[int, Strategies]]:
    return {name: {window: query(trace, window) for window in windows} for name, query in QUERIES.items()}
