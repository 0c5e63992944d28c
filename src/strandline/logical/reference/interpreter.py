"""The meaning of a plan, executable: slow, obvious, snapshot by snapshot.

`snapshot(plan, streams, t)` is the bag of rows that the plain relational query returns over the window contents at
instant t. Property tests hold every operator and every plan against it. Nothing here is fast, and nothing is shared
with the code that is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from strandline.core.temporal import AFTER_ALL, BEFORE_ALL, FOREVER, Instant, to_datetime
from strandline.core.types import Column
from strandline.functions.aggregates import aggregate, compare_rows, in_order
from strandline.functions.evaluate import evaluate
from strandline.logical import plan as logical
from strandline.logical.catalog import WEIGHT
from strandline.logical.expressions import ColumnRef, Expression, Literal, SortKey, Value
from strandline.logical.plan import Plan
from strandline.logical.properties.temporal import granule, is_chronon_stream, keeps_arrival_order
from strandline.logical.reference.window_functions import call_value
from strandline.logical.schema import schema
from strandline.logical.tree import sources, substitute_columns, walk

Row: TypeAlias = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a raw stream: its timestamp and its values by declared column name; where the stream has intervals,
    the first instant at which it is no longer valid."""

    time: Instant
    values: Mapping[str, Value]
    until: Instant | None = None

    @property
    def end(self) -> Instant:
        return self.time + 1 if self.until is None else self.until


RawStreams: TypeAlias = Mapping[str, Sequence[Element]]


def snapshot(plan: Plan, streams: RawStreams, at: Instant) -> list[Row]:
    """The rows that are valid at an instant, as a bag, by column id."""
    return next(snapshots(plan, streams, [at]))


def snapshots(plan: Plan, streams: RawStreams, instants: Iterable[Instant]) -> Iterator[list[Row]]:
    """The snapshots at some instants, one after the other; common parts are computed once."""
    interpreter = _Interpreter(streams, _origin(plan, streams))
    return (interpreter.at(plan, t) for t in instants)


def _origin(plan: Plan, streams: RawStreams) -> Instant | None:
    """The first element of any stream; of any table, where there are only tables."""
    scans = {node.stream: node.table for node in walk(plan) if isinstance(node, logical.Scan)}
    names = [name for name, table in scans.items() if table is None] or list(scans)
    return min((e.time for name in names for e in streams.get(name, ())), default=None)


@dataclass(frozen=True, slots=True)
class _Interpreter:
    streams: RawStreams
    origin: Instant | None  # the first element of any input: from then on the query has a result
    cache: dict[tuple[int, Instant], list[Row]] = field(default_factory=dict)  # by the identity of the node

    def at(self, plan: Plan, t: Instant) -> list[Row]:
        key = (id(plan), t)
        if key not in self.cache:
            self.cache[key] = self._at(plan, t)
        return self.cache[key]

    def _at(self, plan: Plan, t: Instant) -> list[Row]:
        match plan:
            case logical.Scan():
                return [row for _, row in self._scanned(plan, t)]
            case logical.TimeWindow(source=source):
                return [row for s in self._held(plan, t) for row in self.at(source, s)]
            case logical.CountWindow() | logical.SessionWindow():
                return [row for _, row in self._in_rows(plan, t)]
            case logical.WindowBounds():
                bounds = _bounds(plan, t)
                return [{**row, **bounds} for row in self.at(plan.source, t)]
            case logical.Granularity(granule_us, source):
                return self.at(source, t // granule_us * granule_us)
            case logical.Changes(kind, source):
                now, before = self.at(source, t), self.at(source, t - 1)
                return _minus(now, before) if kind == "insert" else _minus(before, now)
            case logical.TopRows(partition, order, limit, source):
                ranked = self._ranked(partition, order, source, t)
                return [row for row, rank in ranked if rank <= limit]
            case logical.Rank(column, partition, order, max_rank, source):
                ranked = self._ranked(partition, order, source, t)
                return [{**row, column.id: rank} for row, rank in ranked if max_rank is None or rank <= max_rank]
            case logical.Over():
                return self._over(plan, t)
            case logical.Filter(predicate, source):
                return [row for row in self.at(source, t) if evaluate(predicate, row) is True]
            case logical.Map(outputs, source):
                return [{c.id: evaluate(e, row) for c, e in outputs} for row in self.at(source, t)]
            case logical.Unnest():
                return [unnested for row in self.at(plan.source, t) for unnested in _unnest(plan, row)]
            case logical.Join(predicate, left, right):
                pairs = [{**one, **two} for one in self.at(left, t) for two in self.at(right, t)]
                return [row for row in pairs if predicate is None or evaluate(predicate, row) is True]
            case logical.OuterJoin():
                return self._outer(plan, self.at(plan.left, t), self.at(plan.right, t))
            case logical.SemiJoin(anti, predicate, left, right):
                others = self.at(right, t)
                return [row for row in self.at(left, t) if any(_match(predicate, row, o) for o in others) != anti]
            case logical.MarkJoin(mark, predicate, left, right):
                others = self.at(right, t)
                return [{**row, mark.id: any(_match(predicate, row, o) for o in others)} for row in self.at(left, t)]
            case logical.Lookup():
                return [row for _, row in self._timed(plan, t)]
            case logical.Apply():
                return [row for one in self.at(plan.left, t) for row in self._apply(plan, one, t)]
            case logical.Aggregate():
                return self._aggregate(plan, t)
            case logical.Distinct(source):
                rows = self.at(source, t)
                return list({_key(row): row for row in rows}.values())
            case logical.Union(columns, inputs):
                return [row for source in inputs for row in self._renamed(source, columns, t)]
            case logical.SetOperation(kind, columns, left, right):
                sides = [self._renamed(source, columns, t) for source in (left, right)]
                one, two = (Counter(map(_key, side)) for side in sides)
                rows_by_key = {_key(row): row for side in sides for row in side}
                return [row for key, row in rows_by_key.items() for _ in range(_multiplicity(kind, one[key], two[key]))]

    def _timed(self, plan: Plan, t: Instant) -> list[tuple[Instant, Row]]:
        """The rows that are valid at an instant, each with its row time: when it came."""
        if isinstance(plan, logical.Lookup):
            return [(s, found) for s, row in self._timed(plan.source, t) for found in self._look_up(plan, row, s)]
        if is_chronon_stream(plan):
            return [(t, row) for row in self.at(plan, t)]
        match plan:
            case logical.Scan():
                return self._scanned(plan, t)
            case logical.TimeWindow(source=source):
                return [(s, row) for s in self._held(plan, t) for row in self.at(source, s)]
            case logical.CountWindow() | logical.SessionWindow():
                return self._in_rows(plan, t)
            case logical.Filter(predicate, source):
                return [(s, row) for s, row in self._timed(source, t) if evaluate(predicate, row) is True]
            case logical.Map(outputs, source):
                return [(s, {c.id: evaluate(e, row) for c, e in outputs}) for s, row in self._timed(source, t)]
            case logical.Unnest():
                return [(s, unnested) for s, row in self._timed(plan.source, t) for unnested in _unnest(plan, row)]
            case logical.Join(predicate, left, right):
                sides = self._timed(left, t), self._timed(right, t)
                pairs = [(max(s, u), {**one, **two}) for s, one in sides[0] for u, two in sides[1]]
                return [(s, row) for s, row in pairs if predicate is None or evaluate(predicate, row) is True]
            case logical.Union(columns, inputs):
                return [
                    (s, {c.id: row[name.id] for c, name in zip(columns, schema(source), strict=True)})
                    for source in inputs
                    for s, row in self._timed(source, t)
                ]
        raise AssertionError(f"elements of {type(plan).__name__} have no row time")

    def _look_up(self, plan: logical.Lookup, row: Row, came: Instant) -> list[Row]:
        """What a look-up makes of one row, by the table as it was when the row came."""
        matches = [other for other in self.at(plan.table, came) if _match(plan.predicate, row, other)]
        match plan.kind:
            case "inner":
                return [{**row, **other} for other in matches]
            case "left":
                return [{**row, **other} for other in matches or [dict.fromkeys(c.id for c in schema(plan.table))]]
            case "semi" | "anti":
                return [row] if bool(matches) != (plan.kind == "anti") else []
            case "mark":
                assert plan.mark is not None, "a mark has a column"
                return [{**row, plan.mark.id: bool(matches)}]

    def _apply(self, plan: logical.Apply, row: Row, t: Instant) -> Iterator[Row]:
        """What a subquery makes of one row of the left: its outer references have the values of this row."""
        values: dict[str, Expression] = {c.id: Literal(row[c.id], c.type) for c in schema(plan.left)}
        rows = _Interpreter(self.streams, self.origin).at(substitute_columns(plan.right, values), t)
        if plan.kind == "single":
            assert plan.column is not None and plan.value is not None and len(rows) <= 1, "a single value"
            yield {**row, plan.column.id: evaluate(plan.value, {**row, **rows[0]}) if rows else None}
            return
        matches = any(_match(plan.value, row, other) for other in rows)
        if plan.column is not None:
            yield {**row, plan.column.id: matches}
        elif matches != (plan.kind == "anti"):
            yield row

    def _renamed(self, source: Plan, columns: tuple[Column, ...], t: Instant) -> list[Row]:
        names = [c.id for c in schema(source)]
        return [{c.id: row[n] for c, n in zip(columns, names, strict=True)} for row in self.at(source, t)]

    def _ranked(
        self, partition: tuple[str, ...], order: tuple[SortKey, ...], source: Plan, t: Instant
    ) -> list[tuple[Row, int]]:
        """The rows with their ranks among those of their partition: one more than there are rows before them."""
        parts: dict[object, list[Row]] = {}
        for row in self.at(source, t):
            parts.setdefault(_key(row, partition), []).append(row)
        return [
            (row, 1 + sum(compare_rows(order, other, row) < 0 for other in rows))
            for rows in parts.values()
            for row in rows
        ]

    def _over(self, plan: logical.Over, t: Instant) -> list[Row]:
        """The rows whose window functions are known at an instant and were not before."""
        types = {column.id: column.type for column in schema(plan.source)}
        keys = (*plan.order, *(SortKey(ColumnRef(column_id, types[column_id])) for column_id in plan.ties))
        instants = [t] if plan.per_instant else self._element_instants(plan.source, t + 1)
        parts: dict[object, list[tuple[Instant, Row]]] = {}
        for s in instants:
            for row in in_order(self.at(plan.source, s), keys):
                parts.setdefault(_key(row, plan.partition), []).append((s, row))
        result: list[Row] = []
        for part in parts.values():
            for at, (_, row) in enumerate(part):
                last = at + plan.waits
                known = t if plan.per_instant else part[last][0] if last < len(part) else AFTER_ALL
                if known == t:
                    values = {c.id: call_value(call, part, at, plan.order) for c, call in plan.calls}
                    result.append({**row, **values})
        return result

    def _outer(self, plan: logical.OuterJoin, left: list[Row], right: list[Row]) -> list[Row]:
        pairs = [(one, two) for one in left for two in right if _match(plan.predicate, one, two)]
        result = [{**one, **two} for one, two in pairs]
        for rows, other, preserved in ((left, plan.right, True), (right, plan.left, plan.full)):
            paired = [id(row) for pair in pairs for row in pair]
            nothing: Row = {c.id: None for c in schema(other)}
            # Columns in the order of the schema, whichever side is missing.
            result += [
                {c.id: {**nothing, **row}[c.id] for c in schema(plan)}
                for row in rows
                if preserved and id(row) not in paired
            ]
        return result

    def _aggregate(self, plan: logical.Aggregate, t: Instant) -> list[Row]:
        groups: dict[object, list[Row]] = {}
        if not plan.keys and self.origin is not None and self.origin <= t:
            groups[()] = []
        for row in self.at(plan.source, t):
            groups.setdefault(_key(row, plan.keys), []).append(row)
        result: list[Row] = []
        for rows in groups.values():
            out: Row = {key: rows[0][key] for key in plan.keys} if rows else {}
            for column, call in plan.aggregates:
                out[column.id] = aggregate(call, rows)
            result.append(out)
        return result

    def _scanned(self, scan: logical.Scan, t: Instant) -> list[tuple[Instant, Row]]:
        """The rows of a stream that are valid at an instant, each with its time."""
        instant = t if scan.at is None else scan.at
        elements = (e for e in self.streams.get(scan.stream, ()) if e.time <= instant < e.end)
        # Nothing is dropped here, so each row represents itself.
        return [(e.time, {c.id: 1.0 if c.name == WEIGHT else e.values[c.name] for c in scan.columns}) for e in elements]

    def _held(self, window: logical.TimeWindow, t: Instant) -> list[Instant]:
        """The instants whose elements a time window holds."""
        last = (t + 1 - window.offset_us) // window.slide_us * window.slide_us + window.offset_us
        first = BEFORE_ALL if window.range_us is None else last - window.range_us
        return [s for s in self._element_instants(window.source, last) if first <= s]

    def _in_rows(self, window: logical.CountWindow | logical.SessionWindow, t: Instant) -> list[tuple[Instant, Row]]:
        """The rows that a window by rows or a session holds, each with its time."""
        parts = self._parts(window.partition, window.source, t).values()
        if isinstance(window, logical.CountWindow):
            moves = [(part, len(part) // window.slide * window.slide) for part in parts]
            return [entry for part, last in moves for entry in part[max(last - window.rows, 0) : last]]
        session: list[tuple[Instant, Row]] = []
        for part in parts:
            after = t
            for time, row in reversed(part):
                if after - time >= window.gap_us:
                    break
                session.append((time, row))
                after = time
        return session

    def _element_instants(self, plan: Plan, before: Instant) -> list[Instant]:
        """The instants before another at which a plan that takes a window has elements, in order."""
        if is_chronon_stream(plan):
            return sorted(t for t in _changes(plan, self.streams, self.origin) if t < before)
        length = granule(plan)
        assert length is not None, "a window is over a chronon stream or a granular one"
        first = min(_changes(plan, self.streams, self.origin), default=before) // length * length
        return list(range(first, before, length))

    def _parts(self, partition: tuple[str, ...], source: Plan, t: Instant) -> dict[object, list[tuple[Instant, Row]]]:
        """The elements up to an instant with their times, in order, by partition."""
        by_value = [SortKey(ColumnRef(column.id, column.type)) for column in schema(source)]
        parts: dict[object, list[tuple[Instant, Row]]] = {}
        for s in self._element_instants(source, t + 1):
            rows = self.at(source, s)
            for row in rows if keeps_arrival_order(source) else in_order(rows, by_value):
                parts.setdefault(_key(row, partition), []).append((s, row))
        return parts


def _bounds(plan: logical.WindowBounds, t: Instant) -> Row:
    """The bounds of the window that was finished last at an instant."""
    end = (t + 1 - plan.offset_us) // plan.slide_us * plan.slide_us + plan.offset_us
    start = end - plan.range_us
    if plan.cumulative:
        start = (end - 1 - plan.offset_us) // plan.range_us * plan.range_us + plan.offset_us

    def value(column: Column, at: Instant) -> Value:
        return at if column.type.name == "BIGINT" else to_datetime(at).replace(tzinfo=None)

    return {plan.start.id: value(plan.start, start), plan.end.id: value(plan.end, end)}


def _minus(one: list[Row], two: list[Row]) -> list[Row]:
    """The rows of one bag that the other does not have."""
    remaining = Counter(map(_key, two))
    difference: list[Row] = []
    for row in one:
        key = _key(row)
        if remaining[key] > 0:
            remaining[key] -= 1
        else:
            difference.append(row)
    return difference


def _unnest(plan: logical.Unnest, row: Row) -> list[Row]:
    array = row[plan.array] or ((None,) if plan.outer else ())
    assert isinstance(array, tuple), "an array is a tuple"
    found: list[Row] = []
    for position, element in enumerate(array, 1):
        number = position if row[plan.array] else None
        found.append({**row, plan.element.id: element, **({} if plan.ordinal is None else {plan.ordinal.id: number})})
    return found


def _match(predicate: Expression | None, one: Row, two: Row) -> bool:
    return predicate is None or evaluate(predicate, {**one, **two}) is True


def _multiplicity(kind: logical.SetKind, left: int, right: int) -> int:
    match kind:
        case "except all":
            return max(left - right, 0)
        case "except":
            return int(left > 0 and right == 0)
        case "except strict":
            return left if right == 0 else 0
        case "intersect all":
            return min(left, right)
        case "intersect":
            return int(left > 0 and right > 0)
        case "union max":
            return max(left, right)


def change_instants(plan: Plan, streams: RawStreams) -> list[Instant]:
    """Every instant at which the result can change, and the ones just before and after."""
    return sorted({t + d for t in changes(plan, streams) for d in (-1, 0, 1)})


def changes(plan: Plan, streams: RawStreams) -> set[Instant]:
    """Every instant at which the result can differ from the instant before; some where it does not."""
    return _changes(plan, streams, _origin(plan, streams))


def _changes(plan: Plan, streams: RawStreams, origin: Instant | None) -> set[Instant]:
    def below(source: Plan) -> set[Instant]:
        return _changes(source, streams, origin)

    match plan:
        case logical.Scan(stream, _, _):
            if plan.at is not None:
                return set()
            edges = {t for e in streams.get(stream, ()) for t in (e.time, e.end)}
            return edges - {FOREVER}
        case logical.TimeWindow(range_us, slide_us, source, offset_us):
            instants = below(source)
            length = granule(source)
            if not is_chronon_stream(source) and length is not None and instants:
                last = max(instants) + length  # a long-lived element occurs in every granule
                instants = set(range(min(instants) // length * length, last, length))
            edges = set(instants)
            for s in instants:
                # Seen from the definition: s is held while T - range <= s < T, and T grows in steps of the slide.
                edges.add((s - offset_us) // slide_us * slide_us + slide_us + offset_us - 1)
                if range_us is not None:
                    edges.add((s + range_us - offset_us) // slide_us * slide_us + slide_us + offset_us - 1)
            return edges
        case logical.CountWindow(_, rows, _, source) if not is_chronon_stream(source):
            instants, length = below(source), granule(source)
            assert length is not None, "a window is over a chronon stream or a granular one"
            # A row comes in every granule; as many after the last change as the window holds, it changes no more.
            last = max(instants, default=0) + (rows + 1) * length
            return set(range(min(instants, default=last) // length * length, last, length))
        case logical.SessionWindow(_, gap_us, source):
            instants = below(source)
            return instants | {t + gap_us for t in instants}
        case logical.WindowBounds(_, slide_us, source=source, offset_us=offset_us):
            instants = below(source)
            first, last = min(instants, default=0), max(instants, default=0)
            return instants | set(range((first - offset_us) // slide_us * slide_us + offset_us - 1, last, slide_us))
        case logical.Granularity(granule_us, source):
            return {-(-t // granule_us) * granule_us for t in below(source)}
        case logical.Changes(_, source):
            return {t + d for t in below(source) for d in (0, 1)}
        case logical.Over(waits=waits, source=source) if waits > 0:
            return below(source) | {AFTER_ALL, AFTER_ALL + 1}
        case logical.Aggregate((), _, source) if origin is not None:  # begins with the first element of any stream
            return below(source) | {origin}
        case _:
            return set().union(*map(below, sources(plan)))


def bag(rows: Sequence[Sequence[Value]]) -> list[object]:
    """Rows as a comparable bag: order does not count, duplicates do, NaN equals NaN, NULL equals NULL."""
    return sorted((tuple(map(_identity, row)) for row in rows), key=repr)


def _key(row: Row, columns: Iterable[str] | None = None) -> object:
    """The values of a row, or of some of its columns, for comparison."""
    return tuple(_identity(row[column]) for column in (row if columns is None else columns))


def _identity(value: object) -> object:
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return tuple(map(_identity, value)) if isinstance(value, list | tuple) else value
