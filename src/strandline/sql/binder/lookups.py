"""Joins with tables that are not retroactive: they become look-ups by the time of the rows.

A table that is NON RETROACTIVE is seen by the elements of a stream as it was when they came. So a join of a stream with
it is a Lookup, wherever it is written: in FROM, or as EXISTS, IN and values of subqueries, which are joins by then. A
constant table is the same at all times, and joined like anything else. `FOR SYSTEM_TIME AS OF s.ts` says for one join
what NON RETROACTIVE says for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

from strandline.core.errors import BindError, Span
from strandline.logical import plan as logical
from strandline.logical.expressions import Expression, columns_of, conjunction, conjuncts, reads_only
from strandline.logical.plan import Filter, Join, Lookup, LookupKind, Map, Plan, Scan
from strandline.logical.properties.row_time import window_in_the_way, without_row_time
from strandline.logical.schema import column_ids, filtered, pass_on, schema
from strandline.logical.tree import sources, transform_up, walk
from strandline.sql import ast
from strandline.sql.binder.scope import Scope

Spans: TypeAlias = Mapping[str, Span]  # the names in FROM, by the ids of their columns

_KINDS: Final[dict[str | None, LookupKind]] = {None: "inner", "LEFT": "left", "SEMI": "semi", "ANTI": "anti"}


def look_up_tables(plan: Plan, spans: Spans, query: Span) -> Plan:
    """The plan with look-ups instead of joins with tables that are not retroactive; what has no meaning is refused."""
    if not any(isinstance(node, Lookup) or _is_looked_up(node) for node in walk(plan)):
        return plan
    places = _Places(spans, query)
    plan = transform_up(plan, places.converted)
    for node in walk(plan):
        if isinstance(node, Lookup):
            places.check(node)
    return plan


def join_as_of(
    left: Plan,
    scope: Scope,
    right: Plan,
    kind: str | None,
    predicate: Expression | None,
    span: Span,
    as_of: ast.ColumnName,
) -> Plan:
    """`left JOIN table FOR SYSTEM_TIME AS OF s.ts`: a look-up by the time of the rows of s, a stream of the left."""
    column = scope.column(as_of)
    if column.id not in {relation.time_column for relation in scope.relations}:
        message = f'"{column.name}" is not the time column of a stream on the left of the join'
        hint = "Write FOR SYSTEM_TIME AS OF s.ts, where s is a stream that is ORDERED BY ts."
        raise as_of.error(message, "lookup-as-of", hint)
    if any(isinstance(node, logical.OuterJoin) and column.id in _may_be_missing(node) for node in walk(left)):
        message = f'"{column.name}" has no value for rows without a match in an outer join'
        hint = "Join the table with that stream before the outer join, or write the time column of the other stream."
        raise as_of.error(message, "lookup-as-of", hint)
    if any(isinstance(node, logical.Changes) and column.id in column_ids(node) for node in walk(left)):
        message = f'the rows of a finished session come when it ends, and not at "{column.name}"'
        hint = "Join the table with the stream in a view, and write SESSION over the view."
        raise as_of.error(message, "lookup-as-of", hint)
    if _reads_stream(right):
        hint = "Remove it: rows of streams are joined while they are valid."
        raise BindError("FOR SYSTEM_TIME AS OF needs a table", code="lookup-as-of", hint=hint, span=span)
    if kind not in _KINDS:
        raise _not_preserved(span)
    return _placed(Lookup(_KINDS[kind], None, predicate, left, right), column.id, span)


def _may_be_missing(join: logical.OuterJoin) -> frozenset[str]:
    """The columns that are NULL in rows without a match."""
    return column_ids(join.right) | (column_ids(join.left) if join.full else frozenset())


def _placed(lookup: Lookup, time_id: str, span: Span) -> Plan:
    """A look-up over that input of the joins of its source which has a time column: of a pair the later row would
    count. What joins a table that is not retroactive will be a look-up itself, and has the time of the stream."""
    match lookup.source:
        case Join(condition, left, right) if not _is_table(left) and not _is_table(right):
            side, other = (left, right) if time_id in column_ids(left) else (right, left)
            own = column_ids(side, lookup.table)
            later = [part for part in conjuncts(lookup.predicate) if not columns_of(part) <= own]
            if later and lookup.kind != "inner":
                message = f"the condition of a {lookup.kind} join AS OF the time of a stream reads another stream"
                raise BindError(message, code="lookup-as-of", span=span, hint="Join the table with that stream first.")
            early = conjunction(part for part in conjuncts(lookup.predicate) if part not in later)
            found = _placed(Lookup(lookup.kind, None, early, side, lookup.table), time_id, span)
            sides = (found, other) if side is left else (other, found)
            pairs = filtered(Join(condition, *sides), conjunction(later))
            return pairs if schema(pairs) == schema(lookup) else Map(pass_on(schema(lookup)), pairs)
    return lookup


class _Places:
    """Converts the joins of one plan; `spans` say where the tables are named."""

    def __init__(self, spans: Spans, query: Span) -> None:
        self.spans, self.query = spans, query

    def span(self, table: Plan) -> Span:
        scans = [column.id for node in walk(table) if isinstance(node, Scan) for column in node.columns]
        ids = [column.id for column in schema(table)] + scans
        return next((self.spans[column] for column in ids if column in self.spans), self.query)

    def converted(self, node: Plan) -> Plan:
        match node:
            case Filter(predicate, source):
                return with_condition(source, predicate)
            case Join(predicate, left, right) if _is_table(left) and _reads_stream(right):
                found = self.looked_up("inner", predicate, right, left)
                return Map(pass_on(schema(node)), found)
            case Join(predicate, left, right) if _is_table(right) and _reads_stream(left):
                return self.looked_up("inner", predicate, left, right)
            case logical.OuterJoin(full, predicate, left, right) if self.meet(left, right):
                if full or _is_table(left):
                    raise _not_preserved(self.span(left if _is_table(left) else right))
                return self.looked_up("left", predicate, left, right)
            case logical.SemiJoin(anti, predicate, left, right) if self.meet(left, right):
                if _is_table(left):
                    raise _not_preserved(self.span(left))
                return self.looked_up("anti" if anti else "semi", predicate, left, right)
            case logical.MarkJoin(mark, predicate, left, right) if self.meet(left, right):
                if _is_table(left):
                    raise _not_preserved(self.span(left))
                return self.timed(Lookup("mark", mark, predicate, left, right))
            case logical.Union() | logical.SetOperation():
                self.check_branches(node)
        return node

    def meet(self, left: Plan, right: Plan) -> bool:
        """True if a stream and a table that is not retroactive meet."""
        return any(_is_table(one) and _reads_stream(two) for one, two in ((left, right), (right, left)))

    def looked_up(self, kind: LookupKind, predicate: Expression | None, source: Plan, table: Plan) -> Lookup:
        return self.timed(Lookup(kind, None, predicate, source, table))

    def timed(self, lookup: Lookup) -> Lookup:
        """A look-up whose elements have a row time."""
        changing = without_row_time(lookup.source)
        if changing is not None:
            raise BindError(
                f"cannot look up {_show_table(lookup.table)} for {_show_operator(changing)}",
                code="lookup-over-changing",
                detail="Its elements change with the elements below it, and have no time at which they came.",
                hint="Join the table with the stream below it, or declare the table RETROACTIVE.",
                span=self.span(lookup.table),
            )
        return lookup

    def check_branches(self, node: logical.Union | logical.SetOperation) -> None:
        table = next((branch for branch in sources(node) if _is_table(branch)), None)
        if table is not None and any(map(_reads_stream, sources(node))):
            raise BindError(
                f"cannot combine {_show_table(table)} with rows of a stream",
                code="lookup-set-operation",
                detail="A table that is NON RETROACTIVE has content only for rows of a stream that look it up.",
                hint="Join it with the stream, or declare it RETROACTIVE.",
                span=self.span(table),
            )

    def check(self, lookup: Lookup) -> None:
        """Refuse a look-up below which a window is in the way."""
        window = window_in_the_way(self.timed(lookup))
        if window is None:
            return
        raise BindError(
            f"cannot look up {_show_table(lookup.table)} over {_show_operator(window)}",
            code="lookup-window",
            detail="Its rows become visible after they came, or their number matters to the window.",
            hint="Join the table with the stream in a subquery, and apply the window to that.",
            span=self.span(lookup.table),
        )


def with_condition(source: Plan, predicate: Expression | None) -> Plan:
    """σp(S), with the parts of p that are about an inner look-up in its condition: it decides which rows match."""
    match source:
        case Map(outputs, Lookup() as below) if outputs == pass_on(column for column, _ in outputs):
            return Map(outputs, with_condition(below, predicate))
        case Lookup("inner", _, condition, below, table):
            own = column_ids(table)
            inside = [part for part in conjuncts(predicate) if columns_of(part) & own]
            outside = conjunction(part for part in conjuncts(predicate) if not columns_of(part) & own)
            met = conjunction((*conjuncts(condition), *inside))
            return Lookup("inner", None, met, with_condition(below, outside), table)
        case Join(condition, left, right) if any(isinstance(node, Lookup) for node in (left, right)):
            parts = list(conjuncts(predicate))
            sides: list[Plan] = []
            for side in (left, right):
                pushed = [part for part in parts if isinstance(side, Lookup) and reads_only(part, column_ids(side))]
                parts = [part for part in parts if part not in pushed]
                sides.append(with_condition(side, conjunction(pushed)))
            return filtered(Join(condition, *sides), conjunction(parts))
    return filtered(source, predicate)


def _is_looked_up(node: Plan) -> bool:
    return isinstance(node, Scan) and not node.retroactive and not node.constant


def _is_table(plan: Plan) -> bool:
    """True if a plan reads tables only, and one of them is not retroactive."""
    return not _reads_stream(plan) and any(map(_is_looked_up, walk(plan)))


def _reads_stream(plan: Plan) -> bool:
    return any(isinstance(node, Scan) and node.table is None for node in walk(plan))


def _not_preserved(span: Span) -> BindError:
    return BindError(
        "a table that is looked up must be on the optional side of the join",
        code="lookup-preserved",
        detail="It has content only for rows of a stream that look it up, so its own rows cannot be kept.",
        hint="Write stream LEFT JOIN table, or declare the table RETROACTIVE.",
        span=span,
    )


def _show_table(table: Plan) -> str:
    names = [node.stream for node in walk(table) if isinstance(node, Scan)]
    return f'table "{names[0]}"' if len(names) == 1 else f"tables {', '.join(names)}"


def _show_operator(plan: Plan) -> str:
    """An operator in the words of the language."""
    match plan:
        case logical.Aggregate():
            return "an aggregate"
        case logical.Distinct():
            return "DISTINCT"
        case logical.TopRows():
            return "LIMIT"
        case logical.Rank():
            return "RANK()"
        case logical.Over():
            return "a window function"
        case logical.Granularity():
            return "GRANULARITY"
        case logical.WindowBounds():
            return "finished windows"
        case logical.OuterJoin(full):
            return "a full join" if full else "a left join"
        case logical.SemiJoin(anti):
            return f"{'an anti' if anti else 'a semi'} join, or a subquery of WHERE"
        case logical.MarkJoin() | logical.Apply():
            return "a subquery"
        case logical.SetOperation(kind):
            return kind.upper()
        case logical.SessionWindow():
            return "a session below a join"
        case logical.TimeWindow() | logical.CountWindow():
            return "a window with SLIDE" if _slides(plan) else "a window over granules"
        case logical.Scan() | logical.Filter() | logical.Map() | logical.Unnest():
            raise AssertionError("elements of these have the row time of their inputs")
        case logical.Union() | logical.Join() | logical.Lookup():
            raise AssertionError("elements of these have the row time of their inputs")
        case logical.Changes():
            raise AssertionError("changes are instants")
        case _:
            assert_never(plan)


def _slides(window: logical.TimeWindow | logical.CountWindow) -> bool:
    return (window.slide_us if isinstance(window, logical.TimeWindow) else window.slide) > 1
