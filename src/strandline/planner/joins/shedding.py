"""Optimal sampling rates: how much of each stream a plan can keep, so that the most results survive.

Count windows: all is linear, and the continuous knapsack of Ayad and Naughton (section 4.2.1) gives the optimum.

Time windows: dropping also thins the windows, so that results shrink with the product of the shares. With y = log x the
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

from strandline.planner.joins.rates import Floats, JoinLoad, JoinQuery, Mask, Tree, mask_of, members, output_rate

ROUNDS = 60
CLOSE = 1e-9
STEP = 2.0  # largest step of a sampling rate, in natural logarithms
TURNS = 3
MIN_TURN_GAIN = 1e-6  # of the output; the turns end below it
SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class SheddingPlan:
    """Sampling rates, their load on the capacity, and the results per second that remain."""

    sampling_rates: Floats
    load: float
    output: float

    @property
    def whole(self) -> bool:
        """True if nothing is dropped."""
        return bool((self.sampling_rates == 1.0).all())

    @property
    def worth(self) -> float:
        """R(p) of eq. (21): results per load."""
        return self.output / self.load if self.load else float("inf")


def shed(
    query: JoinQuery, tree: Tree, capacity: float = 1.0, most: Floats | None = None, quick: bool = False
) -> SheddingPlan:
    """Sampling rates with the most results within a capacity, in seconds of work per second.

    `most` are upper bounds of the rates; the tree may join only some of the streams. With windows of both kinds the
    search takes long; `quick` is for comparing many plans.
    """
    plan = _Plan(query, JoinLoad.of(query, tree), mask_of(tree), np.ones(query.size) if most is None else most)
    if plan.load.at(plan.most) <= capacity:
        return plan.settled(plan.most)
    if not query.by_time.any():
        return plan.settled(knapsack(plan.gains, plan.load.linear(), plan.most, capacity))
    inside = list(members(plan.mask))
    if query.by_time[inside].all():
        return plan.settled(_balanced(plan, capacity, plan.most, inside))
    way = _in_turn if quick else _within
    starts = _corners(plan)
    candidates = [plan.settled(way(plan, capacity, start)) for start in (starts[:1] if quick else starts)]
    fitting = [candidate for candidate in candidates if candidate.load <= capacity * (1 + SLACK)]
    return max(fitting or candidates, key=lambda candidate: candidate.output)


@dataclass(frozen=True, slots=True)
class _Plan:
    query: JoinQuery
    load: JoinLoad
    mask: Mask
    most: Floats

    @property
    def gains(self) -> Floats:
        beta: Floats = self.query.flows.beta[self.mask]
        return beta

    def output(self, sampling_rates: Floats) -> float:
        return output_rate(self.query, self.mask, sampling_rates)

    def settled(self, sampling_rates: Floats) -> SheddingPlan:
        return SheddingPlan(sampling_rates, self.load.at(sampling_rates), self.output(sampling_rates))


def knapsack(gains: Floats, costs: Floats, max_rates: Floats, capacity: float) -> Floats:
    """Continuous knapsack: fill the capacity in order of gain per cost."""
    sampling_rates = np.zeros(len(gains))
    with np.errstate(divide="ignore", invalid="ignore"):
        worth = np.where(costs > 0, gains / costs, np.inf)
    for stream in np.argsort(-worth, kind="stable"):
        cost = costs[stream] * max_rates[stream]
        sampling_rates[stream] = max_rates[stream] if cost <= capacity else max(capacity, 0.0) / costs[stream]
        capacity -= sampling_rates[stream] * costs[stream]
    return sampling_rates


def _balanced(plan: _Plan, capacity: float, start: Floats, by_time: list[int]) -> Floats:
    """Optimum for streams with time windows, the others fixed: all sampled streams carry the same load. Streams that
    would exceed 1 stay whole, and the rest is balanced again."""
    sampling_rates = start.copy()
    sampling_rates[by_time] = plan.most[by_time]
    if plan.load.at(sampling_rates) <= capacity:
        return sampling_rates
    free = [i for i in by_time if sampling_rates[i] > 0]
    while free:
        sampling_rates[free] *= np.exp(_balance(plan, capacity, sampling_rates, free))
        whole = [i for i in free if sampling_rates[i] >= plan.most[i]]
        if not whole:
            return sampling_rates
        sampling_rates[whole] = plan.most[whole]
        free = [i for i in free if i not in whole]
    return sampling_rates


def _balance(plan: _Plan, capacity: float, start: Floats, free: list[int]) -> Floats:
    """By how much the logarithms of the shares in `free` change, so that these carry equal loads and fill the capacity.

    Newton's method, which solves load(i) = s for all of them and load = capacity. It begins where all are thinned
    alike, so that it has only to balance.
    """
    inside = plan.load.inside[:, free].astype(np.float64)
    first = plan.load.parts(start)
    count = len(free)
    change = np.full(count, _alike(first, inside.sum(axis=1), capacity))
    system = np.zeros((count + 1, count + 1))
    system[:count, count] = -1.0
    target = np.empty(count + 1)
    for _ in range(ROUNDS):
        parts = first * np.exp(inside @ change)
        carried = inside.T @ parts
        system[:count, :count] = inside.T @ (inside * parts[:, None])
        system[count, :count] = carried
        target[:count], target[count] = -carried, capacity - parts.sum()  # in place of s its new value
        step = _solved(system, target)[:count]
        largest = float(np.abs(step).max())
        change += step if largest <= STEP else step * (STEP / largest)
        if largest <= CLOSE:
            break
    return change


def _alike(parts: Floats, counts: Floats, capacity: float) -> float:
    """The logarithm of the share that is kept of all, where each set of streams shrinks with a power of it."""
    change = 0.0
    for _ in range(ROUNDS):
        loads = parts * np.exp(counts * change)
        total, slope = float(loads.sum()), float(counts @ loads)
        if slope <= 0:
            break
        step = (np.log(capacity) - np.log(total)) * total / slope
        change += max(-STEP * 5, min(STEP * 5, step))
        if abs(step) <= 1e-3:
            break
    return change


def _solved(system: Floats, target: Floats) -> Floats:
    try:
        solution = np.linalg.solve(system, target).astype(np.float64)
        if np.isfinite(solution).all():
            return solution
    except np.linalg.LinAlgError:
        pass
    return np.linalg.lstsq(system, target, rcond=None)[0].astype(np.float64)


def _thinned_alike(plan: _Plan, capacity: float, start: Floats) -> Floats:
    """Equal sampling rate of all streams, so that the load meets the capacity."""
    low, high = -40.0, 0.0
    while high - low > 0.3:
        middle = (low + high) / 2
        low, high = (low, middle) if plan.load.at(start * np.exp(middle)) > capacity else (middle, high)
    thinned: Floats = start * np.exp(low)
    return thinned


def _in_turn(plan: _Plan, capacity: float, start: Floats) -> Floats:
    """Coordinate descent between streams with time and with count windows: quick, and mostly as good as the search."""
    by_time = [i for i in members(plan.mask) if plan.query.by_time[i]]
    best, output = _thinned_alike(plan, capacity, start), -1.0
    for _ in range(TURNS):
        sampling_rates = _filled(plan, capacity, _balanced(plan, capacity, best, by_time))
        if not plan.output(sampling_rates) > output * (1 + MIN_TURN_GAIN):
            break
        best, output = sampling_rates, plan.output(sampling_rates)
    return best


def _corners(plan: _Plan) -> list[Floats]:
    """Starting points: streams with time windows are whole, those with count windows are whole or absent."""
    by_rows = [i for i in members(plan.mask) if not plan.query.by_time[i]]
    starts: list[Floats] = []
    for kept in product((1.0, 0.0), repeat=len(by_rows)):
        sampling_rates = plan.most.copy()
        sampling_rates[by_rows] *= kept
        starts.append(sampling_rates)
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
    sampling_rates = start.copy()
    alpha, beta = float(plan.query.flows.alpha[plan.mask]), plan.gains
    for _ in range(ROUNDS):
        before = sampling_rates.copy()
        for stream in members(plan.mask):
            cost = price * plan.load.per_sampling_rate(sampling_rates, stream)
            if plan.query.by_time[stream]:
                best = 1.0 / cost if cost > 0 else 1.0
            else:
                # The output is thinned · (constant + beta · x): its logarithm grows by beta / (constant + beta · x).
                constant = alpha + float(beta @ sampling_rates) - beta[stream] * sampling_rates[stream]
                best = 1.0 / cost - constant / beta[stream] if cost > 0 and beta[stream] > 0 else 1.0
            sampling_rates[stream] = min(plan.most[stream], max(0.0, best))
        if np.abs(sampling_rates - before).max() <= CLOSE:
            break
    return sampling_rates


def _filled(plan: _Plan, capacity: float, sampling_rates: Floats) -> Floats:
    """The given rates for time windows, and rates for count windows that fill the rest: exactly, since that is a
    knapsack."""
    by_rows = [i for i in members(plan.mask) if not plan.query.by_time[i]]
    if not by_rows:
        return sampling_rates
    filled = sampling_rates.copy()
    filled[by_rows] = 0.0
    costs = np.array([plan.load.per_sampling_rate(sampling_rates, stream) for stream in by_rows])
    room = capacity - plan.load.at(filled)
    filled[by_rows] = knapsack(plan.gains[by_rows], costs, plan.most[by_rows], room)
    return max(
        (sampling_rates, filled), key=lambda rates: (plan.load.at(rates) <= capacity * (1 + CLOSE), plan.output(rates))
    )
