"""What flows on each edge of a plan in the steady state: after chapter 22 of Krämer's thesis.

The thesis describes a stream by d, the mean distance between two starts, l, the mean length of validity, and g, the
granule. Here it is the rate 1/d, the length, and the granule, in seconds, and for each column how many values it has.
`length · rate` elements are valid at an instant: that is what an operator above must keep.

Formulas (22.1) to (22.12); for what the thesis leaves open (sessions, changes, first rows, outer and semi joins, set
operations) they are derived in the same way, and said below.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, TypeAlias, assert_never

from strandline.algebra.expressions import Call, ColumnRef, Expression, Literal, columns_of, conjuncts
from strandline.algebra.operators import (
    Aggregate,
    Changes,
    CountWindow,
    Distinct,
    Filter,
    Granularity,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Plan,
    Rank,
    Scan,
    SemiJoin,
    SessionWindow,
    SetOperation,
    TimeWindow,
    TopRows,
    Union,
)
from strandline.algebra.schema import schema
from strandline.catalog import StreamStatistics
from strandline.temporal import SECOND
from strandline.types import Column

CHRONON: Final = 1 / SECOND
LENGTH: Final = 60.0  # seconds that rows are valid which bring their intervals
RATE: Final = 1000.0  # rows per second of a stream of which nothing is known
VALUES: Final = 1000.0  # values of a column of which nothing is known
LONGEST: Final = 3600.0 * 24 * 365  # "for ever", so that sums stay finite

EQUAL_TO_UNKNOWN: Final = 0.1
RANGE: Final = 1 / 3  # a comparison with a constant
LIKE: Final = 0.1
NULLS: Final = 0.05
OTHER: Final = 0.5


Statistics: TypeAlias = Mapping[str, StreamStatistics]
NOTHING_KNOWN: Final[Statistics] = {}


@dataclass(frozen=True, slots=True)
class Characteristics:
    """A stream in the steady state: elements per second, seconds that each is valid, the granule of its ends in
    seconds, and how many values a column has, by id."""

    rate: float
    length: float
    granule: float = CHRONON
    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def valid(self) -> float:
        """How many elements are valid at an instant."""
        return self.rate * self.length

    def values_of(self, column: str) -> float:
        """How many values a column has among the elements that are valid together."""
        return max(1.0, min(self.values.get(column, VALUES), max(self.valid, 1.0)))


def characteristics(plan: Plan, statistics: Statistics) -> Characteristics:
    """What flows out of a plan."""
    match plan:
        case Scan(stream, _, columns, intervals):
            known = statistics.get(stream, StreamStatistics())
            values = {c.id: known.values[c.name] for c in columns if c.name in known.values}
            return Characteristics(known.rate or RATE, LENGTH if intervals else CHRONON, CHRONON, values)
        case TimeWindow(range_us, slide_us, source):  # (22.10); a slide is a granule
            below = characteristics(source, statistics)
            length = LONGEST if range_us is None else range_us / SECOND
            return replace(below, length=length, granule=max(below.granule, slide_us / SECOND))
        case CountWindow(partition, rows, _, source):  # (22.11) and (22.12)
            below = characteristics(source, statistics)
            parts = _all_groups(below, partition)
            return replace(below, length=min(LONGEST, parts * rows / below.rate) if below.rate else LONGEST)
        case SessionWindow(partition, gap_us, source):
            # Rows come at random: the mean wait for the first gap between them is (e^(rate · gap) - 1) / rate.
            below = characteristics(source, statistics)
            rate, gap = below.rate / _all_groups(below, partition), gap_us / SECOND
            wait = math.expm1(min(rate * gap, 50.0)) / rate if rate else gap
            return replace(below, length=min(LONGEST, wait))
        case Granularity(granule_us, source):  # (22.9)
            below, granule = characteristics(source, statistics), granule_us / SECOND
            if below.length >= granule:
                return replace(below, granule=max(granule, below.granule))
            return replace(below, rate=below.rate * below.length / granule, length=granule, granule=granule)
        case Changes(_, source):
            below = characteristics(source, statistics)
            return replace(below, length=CHRONON)
        case TopRows():
            return _first_rows(plan, characteristics(plan.source, statistics))
        case Rank(place, partition, _, limit, source):
            # Whoever comes or goes moves those behind it, half of its partition or of the places that are shown.
            below = characteristics(source, statistics)
            each = below.valid / _all_groups(below, partition)
            moved = max(1.0, min(each, limit or each) / 2)
            shown = min(1.0, limit / each) if limit is not None and each > limit else 1.0
            rate = 2 * below.rate * moved * shown
            length = below.valid * shown / rate if rate else below.length
            return Characteristics(rate, length, below.granule, {**below.values, place.id: limit or each})
        case Filter(predicate, source):  # (22.1)
            return _filtered(characteristics(source, statistics), predicate)
        case Map(outputs, source):  # (22.2)
            below = characteristics(source, statistics)
            values = {column.id: values_in(expression, below) for column, expression in outputs}
            return replace(below, values=values)
        case Join(predicate, left, right):
            return joined(predicate, characteristics(left, statistics), characteristics(right, statistics))
        case OuterJoin() | SemiJoin() | MarkJoin():
            return _matched(plan, characteristics(plan.left, statistics), characteristics(plan.right, statistics))
        case Aggregate(keys, _, source):
            below = characteristics(source, statistics)
            found = _grouped(below, _all_groups(below, keys))
            values = {key: below.values_of(key) for key in keys}
            return replace(found, values=values)
        case Distinct(source):  # (22.5)
            below = characteristics(source, statistics)
            unique = _all_groups(below, tuple(c.id for c in schema(source)))
            return replace(below, length=min(below.length, unique / below.rate)) if below.rate else below
        case Union(columns, inputs):
            return _merged(columns, inputs, statistics)
        case SetOperation(_, columns, left, right):
            # Both sides together, payload by payload, change as a group does; what is left of them is not more.
            both = _merged(columns, (left, right), statistics)
            return _grouped(both, _all_groups(both, tuple(c.id for c in columns)))
        case _:
            assert_never(plan)


def _all_groups(stream: Characteristics, columns: tuple[str, ...]) -> float:
    """How many combinations of values ever come, not only at an instant."""
    return reduce(lambda found, column: found * stream.values.get(column, VALUES), columns, 1.0)


def _filtered(stream: Characteristics, predicate: Expression) -> Characteristics:
    return replace(stream, rate=stream.rate * selectivity(predicate, stream))


def joined(predicate: Expression | None, left: Characteristics, right: Characteristics) -> Characteristics:
    """(22.4), thinned by the predicate."""
    values = {**left.values, **right.values}
    rate = left.rate * right.valid + right.rate * left.valid
    length = left.length * right.length / max(left.length + right.length, CHRONON)
    both = Characteristics(rate, length, max(left.granule, right.granule), values)
    if predicate is None:
        return both
    pair = Characteristics(rate, math.inf, both.granule, values)  # values are not limited by what is valid
    return replace(both, rate=rate * selectivity(predicate, pair))


def _matched(plan: OuterJoin | SemiJoin | MarkJoin, left: Characteristics, right: Characteristics) -> Characteristics:
    """An element of the left is cut where its partners come and go. With p partners at a time on average, it has none
    for the share e^-p of its time, if they come at random."""
    pairs = joined(plan.predicate, left, right)
    partners = pairs.valid / left.valid if left.valid else 0.0
    lonely = math.exp(-min(partners, 700.0))
    # A partner that comes or goes makes a difference if it is the only one.
    switches = left.rate + 2 * pairs.rate * lonely
    match plan:
        case OuterJoin(full, _, _, _):
            alone = switches * (2 if full else 1) / 2
            rate = pairs.rate + alone
            valid = pairs.valid + lonely * left.valid
            return replace(pairs, rate=rate, length=valid / rate if rate else left.length)
        case SemiJoin(anti, _, _, _):
            valid = left.valid * (lonely if anti else 1 - lonely)
        case MarkJoin():
            valid = left.valid
    rate = max(switches * (0.5 if isinstance(plan, SemiJoin) else 1.0), CHRONON)
    return replace(left, rate=rate, length=min(left.length, valid / rate))


def _grouped(stream: Characteristics, groups: float) -> Characteristics:
    """(22.6) and (22.7): a group has a new value at every granule at which an element of it starts or ends."""
    if not stream.rate or groups / stream.rate >= stream.length:
        return stream
    granule, per_group = stream.granule, stream.rate / groups
    # 1 - (1 - g/l)^(2l/d), for granules far below the distances 2g/d.
    hit = -math.expm1(2 * stream.length * per_group * math.log1p(-min(granule / stream.length, 1 - 1e-12)))
    return replace(stream, rate=groups * hit / granule, length=granule / hit) if hit > 0 else stream


def _first_rows(plan: TopRows, stream: Characteristics) -> Characteristics:
    """Of the valid elements `limit` of each partition are seen; one that comes or goes changes who is with the
    probability that it is among them."""
    seen = min(plan.limit * _all_groups(stream, plan.partition), stream.valid)
    share = seen / stream.valid if stream.valid else 1.0
    rate = max(2 * stream.rate * share, CHRONON)
    return replace(stream, rate=rate, length=seen / rate)


def _merged(columns: tuple[Column, ...], inputs: tuple[Plan, ...], statistics: Statistics) -> Characteristics:
    """(22.3)"""
    below = [characteristics(source, statistics) for source in inputs]
    rate = sum(each.rate for each in below)
    length = sum(each.valid for each in below) / rate if rate else CHRONON
    values: dict[str, float] = {}
    for number, column in enumerate(columns):
        ids = [schema(source)[number].id for source in inputs]
        values[column.id] = max(each.values.get(i, VALUES) for each, i in zip(below, ids, strict=True))
    return Characteristics(rate, length, min(each.granule for each in below), values)


# Which share of the elements a predicate lets pass.


def selectivity(predicate: Expression, stream: Characteristics) -> float:
    """The share of elements that satisfy a predicate, its parts taken as independent."""
    found = 1.0
    for part in conjuncts(predicate):
        found *= _share(part, stream)
    return min(1.0, max(0.0, found))


def _share(part: Expression, stream: Characteristics) -> float:
    match part:
        case Literal(value, _):
            return 1.0 if value is True else 0.0
        case Call("=", (one, two), _):
            return _equal(one, two, stream)
        case Call("<>", (one, two), _):
            return 1.0 - _equal(one, two, stream)
        case Call("<" | "<=" | ">" | ">=", _, _):
            return RANGE
        case Call("and", _, _):
            return selectivity(part, stream)
        case Call("or", parts, _):
            return 1.0 - math.prod(1.0 - _share(each, stream) for each in parts)
        case Call("not", (inner,), _):
            return 1.0 - _share(inner, stream)
        case Call("in", (one, *choices), _):
            return min(1.0, len(choices) * _equal(one, Literal(None, one.type), stream))
        case Call("is_null", _, _):
            return NULLS
        case Call("like" | "similar" | "match", _, _):
            return LIKE
        case _:
            return OTHER


def _equal(one: Expression, two: Expression, stream: Characteristics) -> float:
    """Values match by chance: of as many values as the side with more has, one."""
    sides = [values_in(side, stream) for side in (one, two) if columns_of(side)]
    return 1.0 / max(sides) if sides else EQUAL_TO_UNKNOWN


def values_in(expression: Expression, stream: Characteristics) -> float:
    """How many values an expression has: no more than the columns that it reads, taken together."""
    match expression:
        case Literal():
            return 1.0
        case ColumnRef(column, _):
            return stream.values.get(column, VALUES)
        case Call("%", (_, Literal(int(modulus))), _) if modulus:
            return float(abs(modulus))
        case _:
            return max(1.0, reduce(lambda n, c: n * stream.values.get(c, VALUES), columns_of(expression), 1.0))
