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

from strandline.optimizer.joins.flows import Floats, JoinQuery, Load, Mask, Tree, mask_of, members, output_rate

ROUNDS = 60
CLOSE = 1e-9
STEP = 2.0  # how far a share goes at once, in natural logarithms


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


def shed(query: JoinQuery, tree: Tree, capacity: float = 1.0, most: Floats | None = None) -> Shedding:
    """The shares that give the most results within a capacity, in seconds of work per second.

    `most` is what other drop boxes have left of the streams; the tree may join only some of them.
    """
    plan = _Plan(query, Load.of(query, tree), mask_of(tree), np.ones(query.size) if most is None else most)
    if plan.load.at(plan.most) <= capacity:
        return plan.settled(plan.most)
    if not query.by_time.any():
        return plan.settled(knapsack(plan.gains, plan.load.linear(), plan.most, capacity))
    inside = list(members(plan.mask))
    if query.by_time[inside].all():
        return plan.settled(_balanced(plan, capacity, inside))
    found = [plan.settled(_within(plan, capacity, start)) for start in _corners(plan)]
    return max(found, key=lambda each: each.output)


@dataclass(frozen=True, slots=True)
class _Plan:
    query: JoinQuery
    load: Load
    mask: Mask
    most: Floats

    @property
    def gains(self) -> Floats:
        found: Floats = self.query.flows.beta[self.mask]
        return found

    def output(self, shares: Floats) -> float:
        return output_rate(self.query, self.mask, shares)

    def settled(self, shares: Floats) -> Shedding:
        return Shedding(shares, self.load.at(shares), self.output(shares))


def knapsack(gains: Floats, costs: Floats, most: Floats, capacity: float) -> Floats:
    """The continuous knapsack: as much as there is of what gains most for its cost, while there is room."""
    shares = np.zeros(len(gains))
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = np.where(costs > 0, gains / costs, np.inf)
    for stream in np.argsort(-worth, kind="stable"):
        cost = costs[stream] * most[stream]
        shares[stream] = most[stream] if cost <= capacity else max(capacity, 0.0) / costs[stream]
        capacity -= shares[stream] * costs[stream]
    return shares


def _balanced(plan: _Plan, capacity: float, inside: list[int]) -> Floats:
    """The optimum where all windows go by time: who is thinned carries the same load as the others that are.

    Newton's method for y = log x, which solves load(i) = s for all that are thinned, and load = capacity. Who would
    have to be more than whole is whole, and the rest is balanced anew.
    """
    shares = plan.most.copy()
    free = [i for i in inside if shares[i] > 0]
    while True:
        shares = _balance(plan, capacity, shares, free)
        whole = [i for i in free if shares[i] >= plan.most[i]]
        if not whole:
            return shares
        shares[whole] = plan.most[whole]
        free = [i for i in free if i not in whole]


def _balance(plan: _Plan, capacity: float, start: Floats, free: list[int]) -> Floats:
    """Shares of the streams in `free`, whole or more, that carry equal loads and fill the capacity."""
    shares = start.copy()
    inside = plan.load.inside[:, free].astype(np.float64)
    count = len(free)
    system = np.zeros((count + 1, count + 1))
    system[:count, count] = -1.0
    for _ in range(ROUNDS):
        parts = plan.load.parts(shares)
        carried = inside.T @ parts
        system[:count, :count] = inside.T @ (inside * parts[:, None])
        system[count, :count] = carried
        target = np.append(-carried, capacity - parts.sum())  # in place of s its new value
        step = np.linalg.lstsq(system, target, rcond=None)[0][:count]
        shares[free] *= np.exp(np.clip(step, -STEP, STEP))
        if np.abs(step).max() <= CLOSE:
            break
    return shares


def _corners(plan: _Plan) -> list[Floats]:
    """Where to start: streams by time are whole, those by rows are whole or not there at all."""
    by_rows = [i for i in members(plan.mask) if not plan.query.by_time[i]]
    starts: list[Floats] = []
    for kept in product((1.0, 0.0), repeat=len(by_rows)):
        shares = plan.most.copy()
        shares[by_rows] *= kept
        starts.append(shares)
    return starts


def _within(plan: _Plan, capacity: float, start: Floats) -> Floats:
    """The shares at the price that makes the load meet the capacity."""
    low, high = 0.0, 1.0
    while plan.load.at(_at_price(plan, high, start)) > capacity:
        high *= 4.0
    while high - low > CLOSE * high:
        price = (low + high) / 2
        if plan.load.at(_at_price(plan, price, start)) > capacity:
            low = price
        else:
            high = price
    return _filled(plan, capacity, _at_price(plan, high, start))


def _at_price(plan: _Plan, price: float, start: Floats) -> Floats:
    """The best shares if a unit of load costs `price` of the logarithm of the output."""
    shares = start.copy()
    alpha, beta = float(plan.query.flows.alpha[plan.mask]), plan.gains
    for _ in range(ROUNDS):
        before = shares.copy()
        for stream in members(plan.mask):
            cost = price * plan.load.per_share(shares, stream)
            if plan.query.by_time[stream]:
                best = 1.0 / cost if cost > 0 else 1.0
            else:
                # The output is thinned · (rest + beta · x): its logarithm grows by beta / (rest + beta · x).
                rest = alpha + float(beta @ shares) - beta[stream] * shares[stream]
                best = 1.0 / cost - rest / beta[stream] if cost > 0 and beta[stream] > 0 else 1.0
            shares[stream] = min(plan.most[stream], max(0.0, best))
        if np.abs(shares - before).max() <= CLOSE:
            break
    return shares


def _filled(plan: _Plan, capacity: float, shares: Floats) -> Floats:
    """The same shares by time, and those by rows that fill what is left: exactly, since that is a knapsack."""
    by_rows = [i for i in members(plan.mask) if not plan.query.by_time[i]]
    if not by_rows:
        return shares
    filled = shares.copy()
    filled[by_rows] = 0.0
    costs = np.array([plan.load.per_share(shares, stream) for stream in by_rows])
    room = capacity - plan.load.at(filled)
    filled[by_rows] = knapsack(plan.gains[by_rows], costs, plan.most[by_rows], room)
    return max((shares, filled), key=lambda each: (plan.load.at(each) <= capacity * (1 + CLOSE), plan.output(each)))
