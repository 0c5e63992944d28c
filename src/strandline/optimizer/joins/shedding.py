"""How much of each stream a plan can keep, so that the most results survive.

By rows: all is linear, and the continuous knapsack of Ayad and Naughton (section 4.2.1) gives the optimum.

By time: dropping also thins the windows, so that results shrink with the product of the shares. With y = log x the
problem is convex: maximize Σ y under Σ weight · exp(sum of some y) ≤ capacity and y ≤ 0. At the optimum every stream
that is thinned carries the same load (that of all sets it is part of), and those that stay whole carry no more. For a
price μ of load the best shares are found one at a time, x = 1 / (μ · load per share), at most 1, round after round;
bisection finds the price at which the load meets the capacity.

Both kinds in one join: for fixed shares of the streams by time it is a knapsack again, and for a fixed price each share
has a best value, by time as above and by rows where the gain of a little more equals its price. This need not be
convex, so it is started from several corners; the best is taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from strandline.optimizer.joins.flows import Floats, JoinQuery, Load, Tree, output_rate

ROUNDS = 200
CLOSE = 1e-12


@dataclass(frozen=True, slots=True)
class Shedding:
    """The shares that the drop boxes keep, what that costs of the capacity, and the results per second that remain."""

    shares: Floats
    load: float
    output: float

    @property
    def whole(self) -> bool:
        """Whether nothing is dropped."""
        return bool((self.shares == 1.0).all())


def shed(query: JoinQuery, tree: Tree, capacity: float = 1.0) -> Shedding:
    """The shares that give the most results within a capacity, in seconds of work per second."""
    load = Load.of(query, tree)
    whole = np.ones(query.size)
    if load.at(whole) <= capacity:
        return _settled(query, load, whole)
    if not query.by_time.any():
        gains = query.flows.beta[query.everything]
        return _settled(query, load, knapsack(gains, load.linear(), capacity))
    found = [_priced(query, load, capacity, start) for start in _corners(query)]
    return max(found, key=lambda each: each.output)


def _settled(query: JoinQuery, load: Load, shares: Floats) -> Shedding:
    return Shedding(shares, load.at(shares), output_rate(query, shares))


def knapsack(gains: Floats, costs: Floats, capacity: float) -> Floats:
    """The continuous knapsack: whole what gains most for its cost, as long as there is room, then a part of one."""
    shares = np.zeros(len(gains))
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = np.where(costs > 0, gains / costs, np.inf)
    for stream in np.argsort(-worth, kind="stable"):
        cost = costs[stream]
        shares[stream] = 1.0 if cost <= capacity else max(capacity, 0.0) / cost
        capacity -= shares[stream] * cost
    return shares


def _corners(query: JoinQuery) -> list[Floats]:
    """Where to start: streams by time are whole, those by rows are whole or not there at all."""
    by_rows = np.flatnonzero(~query.by_time)
    starts: list[Floats] = []
    for kept in product((1.0, 0.0), repeat=len(by_rows)):
        shares = np.ones(query.size)
        shares[by_rows] = kept
        starts.append(shares)
    return starts


def _priced(query: JoinQuery, load: Load, capacity: float, start: Floats) -> Shedding:
    low, high = 0.0, 1.0
    while load.at(_at_price(query, load, high, start)) > capacity:
        high *= 4.0
    for _ in range(ROUNDS):
        price = (low + high) / 2
        if load.at(_at_price(query, load, price, start)) > capacity:
            low = price
        else:
            high = price
        if high - low <= CLOSE * high:
            break
    shares = _at_price(query, load, high, start)
    return _settled(query, load, _filled(query, load, capacity, shares))


def _at_price(query: JoinQuery, load: Load, price: float, start: Floats) -> Floats:
    """The best shares if a unit of load costs `price` of the logarithm of the output."""
    shares = start.copy()
    beta, alpha = query.flows.beta[query.everything], query.flows.alpha[query.everything]
    for _ in range(ROUNDS):
        before = shares.copy()
        for stream in range(query.size):
            cost = price * load.per_share(shares, stream)
            if query.by_time[stream]:
                shares[stream] = 1.0 if cost <= 1.0 else 1.0 / cost
            elif beta[stream] > 0:
                # The output is thinned · (rest + beta · x): its logarithm grows by beta / (rest + beta · x).
                rest = float(alpha + beta @ shares) - beta[stream] * shares[stream]
                best = 1.0 / cost - rest / beta[stream] if cost > 0 else 1.0
                shares[stream] = min(1.0, max(0.0, best))
        if np.abs(shares - before).max() <= CLOSE:
            break
    return shares


def _filled(query: JoinQuery, load: Load, capacity: float, shares: Floats) -> Floats:
    """The same shares by time, and those by rows that fill what is left: exactly, since that is a knapsack."""
    by_rows = np.flatnonzero(~query.by_time)
    if not len(by_rows):
        return shares
    bare = shares.copy()
    bare[by_rows] = 0.0
    costs = np.array([load.per_share(shares, stream) for stream in by_rows])
    gains = query.flows.beta[query.everything][by_rows]
    bare[by_rows] = knapsack(gains, costs, capacity - load.at(bare))
    return max((shares, bare), key=lambda each: (load.at(each) <= capacity, output_rate(query, each)))
