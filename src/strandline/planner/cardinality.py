"""Cardinality estimation: the stream on each edge of a plan in the steady state, after chapter 22 of Krämer's thesis.

The thesis describes a stream by d, the mean distance between two starts, l, the mean length of validity, and g, the
granule. Here it is the rate 1/d, the length, and the granule, in seconds, and for each column the number of its
distinct values. `length · rate` elements are valid at an instant: that is what an operator above must keep.

Formulas (22.1) to (22.12); for what the thesis leaves open (sessions, changes, first rows, outer and semi joins, set
operations) they are derived in the same way below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias, assert_never

from strandline.core.temporal import SECOND
from strandline.core.types import Column, Schema
from strandline.logical import plan as logical
from strandline.logical.catalog import StreamStatistics
from strandline.logical.explain import show_expression
from strandline.logical.expressions import Call, ColumnRef, Expression, Literal, columns_of, conjuncts, rebuilt
from strandline.logical.plan import Plan
from strandline.logical.schema import schema
from strandline.logical.tree import sources
from strandline.planner.physical.plan import MatchKind

CHRONON: Final = 1 / SECOND
LENGTH: Final = 60.0  # seconds that rows are valid which bring their intervals
RATE: Final = 1000.0  # rows per second of a stream of which nothing is known
VALUES: Final = 1000.0  # values of a column of which nothing is known
ELEMENTS_OF_ARRAY: Final = 4.0  # of which nothing is known
LONGEST: Final = 3600.0 * 24 * 365  # unbounded validity, as a number, so that sums stay finite

EQUAL_TO_UNKNOWN: Final = 0.1
RANGE: Final = 1 / 3  # a comparison with a constant
LIKE: Final = 0.1
NULLS: Final = 0.05
OTHER: Final = 0.5


StatisticsByStream: TypeAlias = Mapping[str, StreamStatistics]
NOTHING_KNOWN: Final[StatisticsByStream] = {}


@dataclass(frozen=True, slots=True)
class StreamProfile:
    """Stream profile in the steady state: elements per second, seconds of validity, the granule of ends in seconds, and
    the number of distinct values by column id.

    `spread` if some are valid longer than others, between not at all and twice the mean. A join emits its results in
    bursts, one per match of a row; those of a burst agree in the columns `alike`. `steady` if starts have constant
    distances and validities are equally long. As long as elements are rows of one base stream, `names` has the names of
    its columns by id, and `selectivities` what was measured of filters over it.
    """

    rate: float
    length: float
    granule: float = CHRONON
    values: Mapping[str, float] = field(default_factory=dict)
    spread: bool = False
    burst: float = 1.0
    alike: frozenset[str] = frozenset()
    steady: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)

    @property
    def valid(self) -> float:
        """Number of elements valid at an instant."""
        return self.rate * self.length

    def fewer(self, share: float) -> StreamProfile:
        """The same snapshots with fewer, longer elements: this share of their number."""
        return replace(self, rate=self.rate * share, length=min(self.length / share, LONGEST))

    def values_of(self, column: str) -> float:
        """Number of distinct values of a column among the elements that are valid together."""
        return max(1.0, min(self.values.get(column, VALUES), max(self.valid, 1.0)))


def estimate_profile(plan: Plan, statistics: StatisticsByStream) -> StreamProfile:
    """Stream profile of the output of a plan."""
    return estimate_output(plan, tuple(estimate_profile(source, statistics) for source in sources(plan)), statistics)


def estimate_output(plan: Plan, below: tuple[StreamProfile, ...], statistics: StatisticsByStream) -> StreamProfile:
    """Stream profile of the output of an operator, given those of its inputs."""
    match plan:
        case logical.Scan(stream, _, columns, intervals):
            return estimate_scan(statistics.get(stream, StreamStatistics()), columns, intervals)
        case logical.TimeWindow(range_us, slide_us, _):
            return windowed(below[0], range_us, slide_us)
        case logical.CountWindow(partition, rows, _, _):
            return in_last_rows(below[0], partition, rows)
        case logical.SessionWindow(partition, gap_us, _):
            return in_sessions(below[0], partition, gap_us)
        case logical.WindowBounds():
            return bounded(below[0], plan.slide_us, plan.start, plan.end)
        case logical.Granularity(granule_us, _):
            return rounded_up(below[0], granule_us)
        case logical.Changes():
            return replace(below[0], length=CHRONON)
        case logical.TopRows(partition, _, limit, _):
            return first_rows(below[0], partition, limit)
        case logical.Rank(rank_column, partition, _, limit, _):
            return ranked(below[0], rank_column, partition, limit)
        case logical.Over(calls=calls):
            return with_values(below[0], [column for column, _ in calls])
        case logical.Filter(predicate, _):
            return filtered(below[0], predicate)
        case logical.Map(outputs, _):
            return mapped(below[0], outputs)
        case logical.Unnest():
            return unnested(below[0], plan.added)
        case logical.Join(predicate, _, _):
            return joined(predicate, below[0], below[1])
        case logical.OuterJoin(full, predicate, _, _):
            return matched("full" if full else "left", predicate, below[0], below[1])
        case logical.SemiJoin(anti, predicate, _, _):
            return matched("anti" if anti else "semi", predicate, below[0], below[1])
        case logical.MarkJoin():
            return matched("mark", plan.predicate, below[0], below[1])
        case logical.Lookup(kind, _, predicate, _, _):
            return looked_up(kind, predicate, below[0], below[1])
        case logical.Apply():
            raise AssertionError("the binder has replaced every Apply by joins")
        case logical.Aggregate(keys, _, _):
            return aggregated(below[0], keys)
        case logical.Distinct(source):
            return unique(below[0], tuple(c.id for c in schema(source)))
        case logical.Union(columns, inputs):
            return merged(columns, tuple(schema(source) for source in inputs), below)
        case logical.SetOperation(_, columns, left, right):
            # Both sides together, payload by payload, change as a group does; the result is not more.
            both = merged(columns, (schema(left), schema(right)), below)
            return grouped(both, groups_of(both, tuple(c.id for c in columns)))
        case _:
            assert_never(plan)


# Estimates per operator, for logical and physical plans alike.


def estimate_scan(statistics: StreamStatistics, columns: Schema, intervals: bool) -> StreamProfile:
    values = {c.id: statistics.values[c.name] for c in columns if c.name in statistics.values}
    return StreamProfile(
        statistics.rate or RATE,
        (statistics.length or LENGTH) if intervals else CHRONON,
        CHRONON,
        values,
        spread=intervals,
        steady=statistics.steady and not intervals,
        names={c.id: c.name for c in columns},
        selectivities=statistics.selectivities,
    )


def windowed(below: StreamProfile, range_us: int | None, slide_us: int) -> StreamProfile:
    """(22.10); a slide is a granule. A window that moves further than it reaches misses rows."""
    length = LONGEST if range_us is None else range_us / SECOND
    seen = min(1.0, length * SECOND / slide_us)
    return replace(below, rate=below.rate * seen, length=length, granule=max(below.granule, slide_us / SECOND))


def in_last_rows(below: StreamProfile, partition: tuple[str, ...], rows: int) -> StreamProfile:
    """(22.11) and (22.12)"""
    parts = groups_of(below, partition)
    return replace(below, length=min(LONGEST, parts * rows / below.rate) if below.rate else LONGEST)


def in_sessions(below: StreamProfile, partition: tuple[str, ...], gap_us: int) -> StreamProfile:
    """Rows come at random: the mean wait for the first gap between them is (e^(rate · gap) - 1) / rate."""
    rate, gap = below.rate / groups_of(below, partition), gap_us / SECOND
    wait = math.expm1(min(rate * gap, 50.0)) / rate if rate else gap
    return replace(below, length=min(LONGEST, wait), steady=False)


def bounded(below: StreamProfile, slide_us: int, start: Column, end: Column) -> StreamProfile:
    """Elements with the bounds of a window: one for each slide in which they are valid, all with the same bounds."""
    slide = slide_us / SECOND
    parts = max(1.0, below.length / slide)
    values = {**below.values, start.id: 1.0, end.id: 1.0}
    return replace(below, rate=below.rate * parts, length=below.length / parts, granule=slide, values=values)


def rounded_up(below: StreamProfile, granule_us: int) -> StreamProfile:
    """(22.9)"""
    granule = granule_us / SECOND
    if below.length >= granule:
        return replace(below, granule=max(granule, below.granule))
    return replace(below, rate=below.rate * below.length / granule, length=granule, granule=granule)


def first_rows(below: StreamProfile, partition: tuple[str, ...], limit: int) -> StreamProfile:
    """Top-k: of the valid elements `limit` of each partition are visible; an arrival or expiry changes them with the
    probability that it is among them."""
    seen = min(limit * groups_of(below, partition), below.valid)
    share = seen / below.valid if below.valid else 1.0
    rate = max((2 - share) * below.rate * share, CHRONON)  # an expiring element is replaced by another, if there is one
    return replace(below, rate=rate, length=seen / rate, steady=False)


def ranked(below: StreamProfile, rank_column: Column, partition: tuple[str, ...], limit: int | None) -> StreamProfile:
    """Rank: an arrival or expiry shifts the elements behind it, half of its partition or of the visible ranks."""
    per_group = below.valid / groups_of(below, partition)
    moved = max(1.0, min(per_group, limit or per_group) / 2)
    shown = min(1.0, limit / per_group) if limit is not None and per_group > limit else 1.0
    rate = 2 * below.rate * moved * shown
    length = below.valid * shown / rate if rate else below.length
    return StreamProfile(rate, length, below.granule, {**below.values, rank_column.id: limit or per_group})


def with_values(below: StreamProfile, columns: Iterable[Column]) -> StreamProfile:
    """Window functions: the same elements with further columns, of which nothing is known."""
    return replace(below, values={**below.values, **{column.id: VALUES for column in columns}})


def filtered(below: StreamProfile, predicate: Expression) -> StreamProfile:
    """(22.1); of a column that is compared with constants fewer values are left."""
    values = dict(below.values)
    for part in conjuncts(predicate):
        match part:
            case Call("=", (ColumnRef(id, _), Literal()) | (Literal(), ColumnRef(id, _)), _):
                values[id] = 1.0
            case Call("in", (ColumnRef(id, _), *choices), _):
                values[id] = min(values.get(id, VALUES), float(len(choices)))
            case Call("<" | "<=" | ">" | ">=", (ColumnRef(id, _), Literal()) | (Literal(), ColumnRef(id, _)), _):
                values[id] = max(1.0, values.get(id, VALUES) * RANGE)
    return replace(below, rate=below.rate * selectivity(predicate, below), values=values, steady=False)


def mapped(below: StreamProfile, outputs: logical.Outputs) -> StreamProfile:
    """(22.2)"""
    values = {column.id: values_in(expression, below) for column, expression in outputs}
    alike = frozenset(c.id for c, copied in outputs if isinstance(copied, ColumnRef) and copied.id in below.alike)
    return replace(below, values=values, alike=alike, names=pass_names(below.names, outputs))


def unnested(below: StreamProfile, added: Sequence[Column]) -> StreamProfile:
    """The elements of arrays, of which nothing is known: a few for each."""
    values = {**below.values, **{column.id: VALUES for column in added}}
    return replace(below, rate=below.rate * ELEMENTS_OF_ARRAY, values=values)


def pass_names(names: Mapping[str, str], outputs: logical.Outputs) -> dict[str, str]:
    """The columns of a base stream that a map passes on, by their new ids."""
    return {c.id: names[e.id] for c, e in outputs if isinstance(e, ColumnRef) and e.id in names}


def joined(predicate: Expression | None, left: StreamProfile, right: StreamProfile) -> StreamProfile:
    """(22.4), reduced by the predicate. A pair is valid for the rest of the older of the two."""
    values = {**left.values, **right.values}
    rate = left.rate * right.valid + right.rate * left.valid
    if predicate is not None:  # the values of a column are not limited by the valid elements
        rate *= selectivity(predicate, StreamProfile(rate, math.inf, values=values))
    length = left.length * right.length / max(left.length + right.length, CHRONON)
    comings = left.rate + right.rate
    return StreamProfile(
        rate,
        length,
        common_granule(left, right),
        values,
        spread=min(left.length, right.length) > CHRONON,
        burst=max(1.0, rate / comings) if comings else 1.0,
        alike=_equated(predicate),
    )


def common_granule(*streams: StreamProfile) -> float:
    """Granule of what starts and ends where elements of several streams do: the finest common refinement of theirs."""
    return math.gcd(*(max(1, round(stream.granule * SECOND)) for stream in streams)) / SECOND


def _equated(predicate: Expression | None) -> frozenset[str]:
    """The columns that an equality makes equal."""
    columns: set[str] = set()
    for part in conjuncts(predicate):
        match part:
            case Call("=", (ColumnRef(one, _), ColumnRef(two, _)), _):
                columns |= {one, two}
    return frozenset(columns)


def unmatched_fraction(pairs: StreamProfile, left: StreamProfile) -> float:
    """Poisson probability of zero matches: unmatched fraction e^-p of the time, with p matches on average."""
    matches = pairs.valid / left.valid if left.valid else 0.0
    return math.exp(-min(matches, 700.0))


def matched(kind: MatchKind, predicate: Expression | None, left: StreamProfile, right: StreamProfile) -> StreamProfile:
    """An element of the left is split where its matches begin and end."""
    pairs = joined(predicate, left, right)
    unmatched = unmatched_fraction(pairs, left)
    # A match that begins or ends makes a difference if it is the only one.
    switches = left.rate + 2 * pairs.rate * unmatched
    match kind:
        case "left" | "full":
            alone = switches * (2 if kind == "full" else 1) / 2
            rate = pairs.rate + alone
            valid = pairs.valid + unmatched * left.valid
            return replace(pairs, rate=rate, length=valid / rate if rate else left.length)
        case "semi" | "anti":
            valid = left.valid * (unmatched if kind == "anti" else 1 - unmatched)
        case "mark":
            valid = left.valid
    rate = max(switches * (1.0 if kind == "mark" else 0.5), CHRONON)
    return replace(left, rate=rate, length=min(left.length, valid / rate), steady=False)


def looked_up(
    kind: logical.LookupKind, predicate: Expression | None, source: StreamProfile, table: StreamProfile
) -> StreamProfile:
    """An element meets the rows that are valid when it comes, and each result is valid as long as the element."""
    at_once = replace(source, length=CHRONON)
    pairs = joined(predicate, at_once, replace(table, rate=table.valid / LONGEST, length=LONGEST))
    matches = pairs.rate / source.rate if source.rate else 0.0
    unmatched = math.exp(-min(matches, 700.0))
    share = {"inner": matches, "left": matches + unmatched, "semi": 1 - unmatched, "anti": unmatched, "mark": 1.0}[kind]
    values = {**source.values, **table.values} if kind in ("inner", "left") else source.values
    return replace(source, rate=source.rate * share, values=values, steady=False)


def aggregated(below: StreamProfile, keys: tuple[str, ...]) -> StreamProfile:
    # A burst that falls into one group changes it once.
    together = below.burst if below.alike.issuperset(keys) else 1.0
    profile = grouped(replace(below, rate=below.rate / together), groups_of(below, keys))
    values = {key: below.values_of(key) for key in keys}
    return replace(profile, values=values, spread=True, burst=1.0, alike=frozenset(), steady=False, names={})


def changing_share(below: StreamProfile, keys: tuple[str, ...], aggregates: logical.Aggregates) -> float:
    """The share of the changes of a group that change the value of some aggregate. Of m elements that are valid
    together in a group, the one that comes or goes is the MIN or MAX with the chance 1 / m."""
    together = max(1.0, below.valid / groups_of(below, keys))
    if all(call.function in ("min", "max") for _, call in aggregates):
        return min(1.0, len(aggregates) / together)
    return 1.0


def counted(below: StreamProfile, columns: tuple[str, ...]) -> StreamProfile:
    """Duplicate elimination by counting: a payload is one element from its first copy to its last. One that comes finds
    no copy with the chance e^-kL, if payloads come at random, k per second each, and last L."""
    if not below.rate or not below.length or below.length >= LONGEST:
        return unique(below, columns)
    payloads = groups_of(below, columns)
    copies = min(below.valid / payloads, 50.0)
    rate = below.rate * math.exp(-copies)
    return replace(below, rate=rate, length=min(-payloads * math.expm1(-copies) / rate, LONGEST), burst=1.0)


def unique(below: StreamProfile, columns: tuple[str, ...]) -> StreamProfile:
    """(22.5), where payloads come at random, k per second each: an element is sent where its payload appears, and where
    the last one sent ends, as far as the elements reach that have come by then.

    Of elements of equal length L the youngest reaches furthest; with the chance x = 1 - e^-kL there is one, and its age
    is that of a Poisson process within L. So an element that is sent lasts L - x · age on average.

    Where some are valid longer than others, up to L, the furthest end runs ahead of time by L - h; an element goes
    beyond it with the chance h / L, by h / 2, and in all it moves as time does: h² = 2 L / k.
    """
    if not below.rate or not below.length:
        return below
    if below.length >= LONGEST:  # each payload comes once, and stays
        return replace(below, rate=groups_of(below, columns) / LONGEST, burst=1.0)
    per_payload = below.rate / groups_of(below, columns)  # elements per second with the same payload
    covered = -math.expm1(-per_payload * below.length)
    if below.spread:
        longest = 2 * below.length
        length = max(below.length, longest - math.sqrt(2 * longest / per_payload))
    else:
        age = 1 / per_payload - below.length * (1 - covered) / covered if covered > 1e-6 else below.length / 2
        length = below.length - covered * age
    valid = groups_of(below, columns) * covered
    rate = min(valid / length, below.rate)
    return replace(below, rate=rate, length=length, spread=True, burst=1.0, steady=False)


def merged(columns: Schema, inputs: tuple[Schema, ...], below: tuple[StreamProfile, ...]) -> StreamProfile:
    """(22.3)"""
    rate = sum(profile.rate for profile in below)
    length = sum(profile.valid for profile in below) / rate if rate else CHRONON
    values: dict[str, float] = {}
    for number, column in enumerate(columns):
        ids = [schema[number].id for schema in inputs]
        values[column.id] = max(profile.values.get(i, VALUES) for profile, i in zip(below, ids, strict=True))
    spread = any(profile.spread for profile in below) or len({profile.length for profile in below}) > 1
    return StreamProfile(rate, length, common_granule(*below), values, spread)


def grouped(stream: StreamProfile, groups: float) -> StreamProfile:
    """(22.6) and (22.7): a group has a new value at every granule at which an element of it starts or ends, unless it
    is empty then. Elements come at random, m of them are valid together in a group, and k come in a granule: the group
    is not empty with the probability 1 - e^-m, and that without a change with e^-2k (1 - e^-(m-k)).

    Remark 22.1: of elements at constant distances that are valid for a multiple of it, one ends where another starts.
    """
    if not stream.rate or not stream.length:
        return stream
    if groups == 1 and _ends_where_others_start(stream):
        return replace(stream, length=1 / stream.rate)
    granule = min(stream.granule, stream.length)
    coming = stream.rate / groups * granule
    there = stream.valid / groups
    share = -math.expm1(-there) + math.exp(-2 * coming) * math.expm1(-max(there - coming, 0.0))
    rate = groups * share / granule
    return replace(stream, rate=rate, length=groups * -math.expm1(-there) / rate) if rate > 0 else stream


def _ends_where_others_start(stream: StreamProfile) -> bool:
    together = stream.length * stream.rate
    return stream.steady and stream.granule * stream.rate <= 1 <= together and abs(together - round(together)) < 1e-6


def groups_of(stream: StreamProfile, columns: tuple[str, ...]) -> float:
    """Number of distinct value combinations over all time, not only at an instant."""
    return math.prod((stream.values.get(column, VALUES) for column in columns), start=1.0)


# Which share of the elements a predicate lets pass.


def selectivity(predicate: Expression, stream: StreamProfile) -> float:
    """The share of elements that satisfy a predicate: measured, or its parts taken as independent."""
    measured = _measured_share(predicate, stream)
    if measured is not None:
        return measured
    share = math.prod((_share(part, stream) for part in conjuncts(predicate)), start=1.0)
    return min(1.0, max(0.0, share))


def filter_text(predicate: Expression, names: Mapping[str, str]) -> str | None:
    """A predicate over a base stream as text with the names of its columns, whatever their ids in a plan."""
    if not names.keys() >= columns_of(predicate):
        return None
    return show_expression(_renamed(predicate, names))


def _renamed(expression: Expression, names: Mapping[str, str]) -> Expression:
    if isinstance(expression, ColumnRef):
        return replace(expression, id=names[expression.id])
    return rebuilt(expression, lambda child: _renamed(child, names))


def _measured_share(part: Expression, stream: StreamProfile) -> float | None:
    text = filter_text(part, stream.names) if stream.selectivities else None
    return None if text is None else stream.selectivities.get(text)


def _share(part: Expression, stream: StreamProfile) -> float:
    if (measured := _measured_share(part, stream)) is not None:
        return measured
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
            return 1.0 - math.prod(1.0 - _share(one, stream) for one in parts)
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


def _equal(one: Expression, two: Expression, stream: StreamProfile) -> float:
    """Values match by chance: of as many values as the side with more has, one."""
    sides = [values_in(side, stream) for side in (one, two) if columns_of(side)]
    return 1.0 / max(sides) if sides else EQUAL_TO_UNKNOWN


def values_in(expression: Expression, stream: StreamProfile) -> float:
    """Number of distinct values of an expression: at most that of the combinations of its columns."""
    match expression:
        case Literal():
            return 1.0
        case ColumnRef(column, _):
            return stream.values.get(column, VALUES)
        case Call("%", (_, Literal(int(modulus))), _) if modulus:
            return float(abs(modulus))
        case _:
            return max(1.0, groups_of(stream, tuple(columns_of(expression))))
