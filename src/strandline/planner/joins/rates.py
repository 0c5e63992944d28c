"""Rates, windows and costs of a join of streams.

The model of Ayad and Naughton (SIGMOD 2004), equations (1) to (10), (18) and (19), for count windows and time windows.
Streams are numbered; a set of them is a bit mask. The output rate of the join of a set S is the same for every plan:

    rate(S) = F(S) · Σ over k in S of rate(k) · Π over the others of their windows

F(S) multiplies the selectivities inside S. At sampling rate x of a stream, its rate becomes x · rate; its count window
stays as it is, and its time window shrinks by x. So all rates have one form,

    rate(S)(x) = Π over the streams by time of x · (alpha + Σ over those by rows of beta · x)

and a plan costs a weighted sum of the rates of the sets that it forms: see `JoinLoad`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Mask: TypeAlias = int
# A stream by its number, or the join of two trees.
Tree: TypeAlias = "int | tuple[Tree, Tree]"


TINY = 1e-12  # a share that is nothing, but has a logarithm


@dataclass(frozen=True, slots=True)
class JoinInput:
    """A stream of a join: rows per second, and its count or time window."""

    name: str
    rate: float
    rows: float | None = None
    seconds: float | None = None

    @property
    def window(self) -> float:
        """Rows in the window in the steady state."""
        if self.rows is not None:
            return self.rows
        assert self.seconds is not None, "a window counts rows or goes by time"
        return self.rate * self.seconds


@dataclass(frozen=True, slots=True)
class JoinCosts:
    """Seconds of work in a join: per arriving row, per result, and per candidate pair without a key."""

    arrival: float
    result: float = 0.0
    pair: float = 0.0


@dataclass(frozen=True)
class JoinQuery:
    """Streams to be joined; the selectivity between two of them is 1 by default."""

    inputs: tuple[JoinInput, ...]
    selectivity: Mapping[frozenset[int], float]
    costs: JoinCosts
    keyed: frozenset[frozenset[int]] = frozenset()  # the pairs whose condition has a hash key
    above: float = 0.0  # seconds of work per result of the whole join, in the operators above it

    @cached_property
    def size(self) -> int:
        return len(self.inputs)

    @cached_property
    def everything(self) -> Mask:
        return (1 << self.size) - 1

    @cached_property
    def by_time(self) -> NDArray[np.bool_]:
        return np.array([item.rows is None for item in self.inputs])

    @cached_property
    def flows(self) -> JoinRates:
        return JoinRates(self)

    @cached_property
    def loads(self) -> dict[Tree, JoinLoad]:
        """Cache of loads."""
        return {}

    def factor(self, one: Mask, two: Mask) -> float:
        """The selectivity of the join of two sets."""
        selectivity = 1.0
        for i in members(one):
            for k in members(two):
                selectivity *= self.selectivity.get(frozenset((i, k)), 1.0)
        return selectivity

    def has_key(self, one: Mask, two: Mask) -> bool:
        return any(frozenset((i, k)) in self.keyed for i in members(one) for k in members(two))


class JoinRates:
    """The coefficients alpha and beta of the rate of every set of streams."""

    def __init__(self, query: JoinQuery) -> None:
        n = query.size
        windows = np.array([item.window for item in query.inputs])
        rates = np.array([item.rate for item in query.inputs])
        self.alpha = np.zeros(1 << n)
        self.beta = np.zeros((1 << n, n))
        for mask in range(1, 1 << n):
            for k in members(mask):
                others = self._without(query, windows, mask, k)
                if query.by_time[k]:
                    self.alpha[mask] += rates[k] * others
                else:
                    self.beta[mask, k] = rates[k] * others
        self.rate: Floats = self.alpha + self.beta.sum(axis=1)  # with nothing dropped

    @staticmethod
    def _without(query: JoinQuery, windows: Floats, mask: Mask, k: int) -> float:
        """F(S) times the windows of all but one."""
        product = 1.0
        inside = list(members(mask))
        for position, i in enumerate(inside):
            if i != k:
                product *= float(windows[i])
            for j in inside[:position]:
                product *= query.selectivity.get(frozenset((i, j)), 1.0)
        return product


def members(mask: Mask) -> Iterator[int]:
    number = 0
    while mask:
        if mask & 1:
            yield number
        mask >>= 1
        number += 1


def mask_of(tree: Tree) -> Mask:
    return 1 << tree if isinstance(tree, int) else mask_of(tree[0]) | mask_of(tree[1])


def joins_of(tree: Tree) -> Iterator[tuple[Mask, Mask]]:
    """The joins of a tree, each after those that it reads."""
    if isinstance(tree, int):
        return
    for side in tree:
        yield from joins_of(side)
    yield mask_of(tree[0]), mask_of(tree[1])


@dataclass(frozen=True)
class JoinLoad:
    """Cost of a plan as a function of the sampling rates: Σ of weight(S) · rate(S)(x)."""

    query: JoinQuery
    masks: tuple[Mask, ...]
    weights: Floats

    @staticmethod
    def of(query: JoinQuery, tree: Tree) -> JoinLoad:
        """The load of a plan: eq. (9) per join, and the cost of results and pairs."""
        if tree in query.loads:  # a search meets the same part again and again
            return query.loads[tree]
        weights: dict[Mask, float] = {}
        costs = query.costs
        for left, right in joins_of(tree):
            for side in (left, right):
                weights[side] = weights.get(side, 0.0) + costs.arrival
            weight = costs.result + (query.above if left | right == query.everything else 0.0)
            if costs.pair and not query.has_key(left, right):
                factor = query.factor(left, right)
                weight += costs.pair / factor if factor else 0.0
            if weight:
                weights[left | right] = weights.get(left | right, 0.0) + weight
        query.loads[tree] = JoinLoad(query, tuple(weights), np.array(list(weights.values())))
        return query.loads[tree]

    @cached_property
    def _alpha(self) -> Floats:
        alpha: Floats = self.weights * self.query.flows.alpha[list(self.masks)]
        return alpha

    @cached_property
    def _beta(self) -> Floats:
        beta: Floats = self.weights[:, None] * self.query.flows.beta[list(self.masks)]
        return beta

    @cached_property
    def inside(self) -> NDArray[np.bool_]:
        """Streams with time windows of each set."""
        inside = np.array([[mask >> i & 1 for i in range(self.query.size)] for mask in self.masks], np.bool_)
        by_time: NDArray[np.bool_] = inside & self.query.by_time
        return by_time

    def at(self, sampling_rates: Floats) -> float:
        """Seconds of work per second."""
        return float(np.sum(self.parts(sampling_rates)))

    def parts(self, sampling_rates: Floats) -> Floats:
        """The same, set by set."""
        thinned = np.where(self.inside, sampling_rates, 1.0).prod(axis=1)
        loads: Floats = thinned * (self._alpha + self._beta @ sampling_rates)
        return loads

    def passing(self, sampling_rates: Floats, held: Floats) -> float:
        """The load while windows still hold rows of earlier rates: of each result one row is new, the others are held.
        Which one is new is averaged geometrically, which is exact where all streams are thinned alike."""
        new = 1.0 / np.maximum(self.inside.sum(axis=1), 1)[:, None]
        logs = new * np.log(np.maximum(sampling_rates, TINY)) + (1 - new) * np.log(np.maximum(held, TINY))
        thinned = np.exp(np.where(self.inside, logs, 0.0).sum(axis=1))
        return float(np.sum(thinned * (self._alpha + self._beta @ sampling_rates)))

    def linear(self) -> Floats:
        """The coefficients a of eq. (19), where all windows count rows."""
        assert not self.query.by_time.any(), "thinner windows are not linear"
        coefficients: Floats = self._beta.sum(axis=0)
        return coefficients

    def per_sampling_rate(self, sampling_rates: Floats, stream: int) -> float:
        """Partial derivative of the load by the sampling rate of one stream."""
        others = np.where(self.inside, sampling_rates, 1.0)
        others[:, stream] = 1.0
        thinned = others.prod(axis=1)
        if self.query.by_time[stream]:
            has = self.inside[:, stream]
            return float(np.sum((thinned * (self._alpha + self._beta @ sampling_rates))[has]))
        return float(np.sum(thinned * self._beta[:, stream]))


def output_rate(query: JoinQuery, mask: Mask, sampling_rates: Floats) -> float:
    """Output rate of the join of a set, in rows per second: eq. (5) and (18)."""
    inside = np.array([mask >> i & 1 for i in range(query.size)], np.bool_)
    thinned = float(np.where(query.by_time & inside, sampling_rates, 1.0).prod())
    return thinned * float(query.flows.alpha[mask] + query.flows.beta[mask] @ sampling_rates)
