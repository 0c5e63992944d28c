"""What a random question covers, seen from the question itself and not from what its writer meant to write.

A cell is a feature of the language or of streams. Every cell must be in at least 1 % of the questions of a long run:
what is hardly ever asked is not tested. A new feature of the language gets its cells here, its way into questions in
`strategies.py`, and its translation in `strandline/apps/verify/dialect.py` or `translate.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TypeGuard

import polars as pl

import user_functions as users
from strandline.apps.verify.dataset import QueryUnderTest
from strandline.core.temporal import FOREVER, OPEN
from strandline.functions.aggregates import AGGREGATES, find_aggregate
from strandline.runtime.kernels.batch import UNTIL
from strandline.sql import ast
from strandline.sql.binder.asof_joins import as_table_join
from strandline.sql.binder.derived_windows import with_derived_windows
from strandline.sql.binder.expressions import Subquery
from strandline.sql.binder.grouping import grouping_sets, is_grouping
from strandline.sql.binder.names import Names
from strandline.sql.binder.window_functions import RANKS, SUMMED, VALUES
from strandline.sql.parser.statements import parse
from strategies import Question
from support import DOMAIN, Arrivals, Cuts
from table_logs import DrawnTable

GROUPS: dict[str, tuple[str, ...]] = {
    "windows": (
        "now",
        "range",
        "unbounded",
        "slide",
        "slide beyond the range",
        "rows",
        "partitioned rows",
        "rows with slide",
        "session",
        "partitioned session",
        "several kinds",
        "tumble",
        "hop",
        "cumulate",
        "finished session",
        "in GROUP BY",
    ),
    "window functions": (
        "frame by time",
        "frame by rows",
        "no frame",
        "a row that waits",
        "a value of another row",
        "a number or rank",
        "lag",
        "lead",
        "first_value",
        "last_value",
        "nth_value",
        "row_number",
        "rank",
        "dense_rank",
        "an aggregate",
        "an aggregate of all values",
        "ignore nulls",
        "QUALIFY",
        "no order",
        "a named window",
        "further order",
        "over a query",
    ),
    "windows over": ("a stream", "a subquery", "a named query", "changes", "granules"),
    "boundary instants": ("one row comes as another goes", "a row at the end of a slide"),
    "streams": (
        "ties",
        "disorder",
        "empty",
        "skew",
        "null",
        "nan",
        "infinity",
        "minus infinity",
        "extreme",
        "unicode",
        "intervals",
    ),
    "joins": (
        "inner",
        "left",
        "right",
        "full",
        "cross",
        "semi",
        "anti",
        "using",
        "natural",
        "self",
        "theta",
        "asof",
        "asof left",
        "asof with a table",
        "lateral",
        "windows by condition",
    ),
    "sets": (
        "union all",
        "union",
        "union max",
        "except",
        "except all",
        "except strict",
        "intersect",
        "intersect all",
    ),
    "subqueries": (
        "exists",
        "not exists",
        "in",
        "not in",
        "any",
        "all",
        "scalar",
        "correlated",
        "nested",
        "two levels out",
        "in SELECT",
        "in FROM",
        "in WHERE",
        "in HAVING",
    ),
    "names": ("a derived stream", "a view", "WITH", "used"),
    "grouping": (
        "plain",
        "grouping sets",
        "rollup",
        "cube",
        "beside ordinary keys",
        "the empty set",
        "a set twice",
        "GROUPING in SELECT",
        "GROUPING in HAVING",
        "sets and distinct values",
        "sets and filter",
    ),
    "aggregates": (
        *(name for name in AGGREGATES),
        "count distinct",
        "sum distinct",
        "avg distinct",
        "distinct values",
        "filter",
        "in an order",
        "of the user's",
    ),
    "expressions": (
        "arithmetic",
        "comparison",
        "and, or",
        "not",
        "is null",
        "is distinct from",
        "between",
        "in a list",
        "like",
        "case",
        "cast",
        "coalesce",
        "nullif",
        "a function",
        "a function of the user's",
        "json",
        "time zone",
        "of an array",
    ),
    "outputs": (
        "plain",
        "distinct",
        "grouped",
        "having",
        "without groups",
        "istream",
        "dstream",
        "rstream",
        "first rows",
        "granules",
        "unnest",
    ),
    "ranks": ("of each partition", "of all", "up to a place", "a place alone", "in the answer", "QUALIFY", "of groups"),
    "tables": (
        "retroactive",
        "looked up",
        "as of",
        "constant",
        "temporal",
        "periods that overlap",
        "a period without an end",
        "keyed",
        "bag",
        "equal rows",
        "given times",
        "by the clock",
        "several changes at one instant",
        "before the query",
        "while the query runs",
        "a changed key",
        "granules",
        "NOT NULL",
        "a value by default",
        "fed",
        "fed with operations",
        "fed late",
    ),
    "cuts": ("one row per batch", "all in one", "at random", "inside a tie", "several buckets"),
}


def cells(asked: Question, cut: Cuts) -> set[str]:
    """The cells that a question and the way it is fed are in, as `group: cell`."""
    found = {f"streams: {cell}" for stream in asked.streams for cell in _stream(stream)}
    found |= {f"cuts: {cell}" for cell in _cut(asked, cut)}
    found |= {f"tables: {cell}" for drawn in asked.tables for cell in _table(drawn)}
    statements = parse(asked.text)
    definitions = ast.CreateStreamAs | ast.CreateView | ast.CommonTable
    named = {s.name.name.lower() for each in statements for s in _walk(each) if isinstance(s, definitions)}
    for statement in statements:
        found |= set(_syntax(statement, named))
        found |= {f"boundary instants: {cell}" for cell in _boundaries(statement, asked.streams)}
        found |= {f"expressions: {cell}" for node in _walk(statement) for cell in _expression(node)}
    kinds = found & {f"windows: {kind}" for kind in ("range", "slide", "rows", "partitioned rows", "session")}
    return found | {"windows: several kinds"} if len(kinds) > 1 else found


def meant(bound: QueryUnderTest) -> Iterator[str]:
    """Cells that are seen in what a query means."""
    inside = bound.name_scope.inside(bound.query) if isinstance(bound.query, ast.With) else bound.name_scope
    names = Names(inside.catalog)
    selects = [node for node in _walk(bound.query) if isinstance(node, ast.Select)]
    if any(with_derived_windows(select, names) != select for select in selects):
        yield "joins: windows by condition"
    joins = [node for node in _walk(bound.query) if isinstance(node, ast.Join) and node.asof]
    if any(as_table_join(join, names.catalog) is not join for join in joins):
        yield "joins: asof with a table"


# ---- syntax ----------------------------------------------------------------------------------------------------------


def _walk(node: ast.Node) -> Iterator[ast.Node]:
    yield node
    for child in ast.children(node):
        yield from _walk(child)


def _syntax(statement: ast.Node, named: set[str]) -> Iterator[str]:
    for node in _walk(statement):
        match node:
            case ast.NamedWindow():
                yield "window functions: a named window"
            case ast.WindowCall():
                yield from (f"window functions: {cell}" for cell in _over(node))
            case ast.StreamTable(name, window, _):
                over = "a named query" if name.name.lower() in named else "a stream"
                if over == "a named query":
                    yield "names: used"
                yield from _window(window, over)
                if node.granularity is not None:
                    yield "outputs: granules"
                if node.as_of is not None:
                    yield "tables: as of"
                if node.granularity is not None and name.name.startswith("r"):
                    yield "tables: granules"
            case ast.QueryTable(query, window, _):
                yield "joins: lateral" if node.lateral else "subqueries: in FROM"
                yield from _window(window, _what_is_under_a_window(query))
            case ast.WindowTable(kind):
                yield f"windows: {'finished session' if kind == 'SESSION' else kind.lower()}"
                if node.source.span.start < node.span.start:
                    yield "windows: in GROUP BY"
            case ast.CreateStreamAs():
                yield "names: a derived stream"
            case ast.CreateView():
                yield "names: a view"
            case ast.With():
                yield "names: WITH"
            case ast.Changes(kind, _):
                yield f"outputs: {kind.lower()}"
            case ast.Ordered():
                yield "outputs: first rows"
            case ast.UnnestTable():
                yield "outputs: unnest"
            case ast.Join():
                yield from (f"joins: {cell}" for cell in _join(node))
            case ast.UnionAll():
                yield "sets: union all"
            case ast.SetOperation(operator, _, _):
                yield f"sets: {operator.lower()}"
            case ast.Exists() | ast.Quantified() | ast.ScalarQuery():
                yield from (f"subqueries: {cell}" for cell in _subquery(node))
            case ast.FunctionCall(name, _):
                yield from _aggregate(node)
            case ast.Select():
                yield from (f"outputs: {cell}" for cell in _output(node))
                yield from (f"subqueries: {cell}" for cell in _places_of_subqueries(node))
                yield from (f"grouping: {cell}" for cell in _grouping(node))
                yield from (f"ranks: {cell}" for cell in _ranks(node))
                yield from (f"window functions: {cell}" for cell in _around_windows(node))


def _what_is_under_a_window(query: ast.Query) -> str:
    if isinstance(query, ast.Changes) and query.kind != "RSTREAM":
        return "changes"
    tables = [node for node in _walk(query) if isinstance(node, ast.StreamTable | ast.QueryTable)]
    return "granules" if any(table.granularity is not None for table in tables) else "a subquery"


def _window(window: ast.Window | None, over: str) -> Iterator[str]:
    match window:
        case None | ast.NowWindow():
            yield "windows: now"
            return
        case ast.RangeWindow(None, _):
            yield "windows: unbounded"
        case ast.RangeWindow(_, None):
            yield "windows: range"
        case ast.RangeWindow(length, slide):
            assert length is not None and slide is not None
            beyond = slide.microseconds > length.microseconds
            yield "windows: slide beyond the range" if beyond else "windows: slide"
        case ast.RowsWindow(partition, _, rows):
            yield "windows: partitioned rows" if partition else "windows: rows"
            if rows > 1:
                yield "windows: rows with slide"
        case ast.SessionWindow(partition, _):
            yield "windows: partitioned session" if partition else "windows: session"
    yield f"windows over: {over}"


def _join(join: ast.Join) -> Iterator[str]:
    if join.asof:
        yield "asof left" if join.kind == "LEFT" else "asof"
        return
    if join.natural or join.using:
        yield "natural" if join.natural else "using"
    elif join.condition is None:
        yield "cross"
        return
    else:
        equal = [n for n in _walk(join.condition) if isinstance(n, ast.Binary) and n.operator == "="]
        if not any(isinstance(n.left, ast.ColumnName) and isinstance(n.right, ast.ColumnName) for n in equal):
            yield "theta"
    yield (join.kind or "INNER").lower()
    sides = [[n.name.name for n in _walk(side) if isinstance(n, ast.StreamTable)] for side in (join.left, join.right)]
    if set(sides[0]) & set(sides[1]):
        yield "self"


def _subquery(node: Subquery) -> Iterator[str]:
    if isinstance(node, ast.Exists):
        before = node.span.text[: node.span.start].rstrip().upper()
        yield "not exists" if before.endswith("NOT") else "exists"
    elif isinstance(node, ast.ScalarQuery):
        yield "scalar"
    else:
        written = node.text[len(node.operand.text) :].lstrip(" )").upper()
        words = {"IN": "in", "NOT IN": "not in"}
        yield next((cell for word, cell in words.items() if written.startswith(word)), node.quantifier.lower())
    inner = list(_walk(node.query))
    own = {table.alias.name for table in inner if isinstance(table, ast.StreamTable | ast.QueryTable) and table.alias}
    if _qualifiers(node.query) - own:
        yield "correlated"
    nested = [n for n in inner if isinstance(n, ast.Exists | ast.Quantified | ast.ScalarQuery)]
    if nested:
        yield "nested"
    if any(_qualifiers(n.query) - own for n in nested):
        yield "two levels out"


def _qualifiers(query: ast.Query) -> set[str]:
    """The names before columns, anywhere in a query."""
    return {n.qualifier.name for n in _walk(query) if isinstance(n, ast.ColumnName) and n.qualifier}


def _within_its_query(node: ast.Node) -> Iterator[ast.Node]:
    """The nodes under a node that belong to the same query; of a subquery only that there is one."""
    yield node
    for child in ast.children(node):
        if not isinstance(child, ast.Query):
            yield from _within_its_query(child)


def _places_of_subqueries(select: ast.Select) -> Iterator[str]:
    clauses = {"SELECT": select.items, "WHERE": (select.where,), "HAVING": (select.having,)}
    for clause, parts in clauses.items():
        nodes = (node for part in parts if part is not None for node in _within_its_query(part))
        if any(isinstance(node, Subquery) for node in nodes):
            yield f"in {clause}"


def _aggregate(node: ast.FunctionCall) -> Iterator[str]:
    function = find_aggregate(node.name.name)
    if node.name.name.lower() in users.AGGREGATES:
        yield "aggregates: of the user's"
    if function is not None:
        yield f"aggregates: {function.name}"
        if node.distinct:
            yield "aggregates: distinct values"
            yield f"aggregates: {function.name} distinct"
        if node.filter is not None:
            yield "aggregates: filter"
        if node.order:
            yield "aggregates: in an order"


def _grouping(select: ast.Select) -> Iterator[str]:
    kinds = [n.kind for element in select.group_by for n in _walk(element) if isinstance(n, ast.GroupingSets)]
    if not kinds:
        if select.group_by:
            yield "plain"
        return
    yield from ("grouping sets" if kind == "GROUPING" else kind.lower() for kind in kinds)
    if any(not isinstance(element, ast.GroupingSets) for element in select.group_by):
        yield "beside ordinary keys"
    sets = [frozenset(each) for each in grouping_sets(select.group_by)]
    if frozenset() in sets:
        yield "the empty set"
    if len(set(sets)) < len(sets):
        yield "a set twice"
    above = {"SELECT": select.items, "HAVING": (select.having,) if select.having else ()}
    for clause, parts in above.items():
        for call in (n for part in parts for n in _within_its_query(part) if isinstance(n, ast.FunctionCall)):
            if call.name.name.upper() == "GROUPING":
                yield f"GROUPING in {clause}"
            if call.distinct:
                yield "sets and distinct values"
            if call.filter is not None:
                yield "sets and filter"


def _ranks(select: ast.Select) -> Iterator[str]:
    listed = [node for item in select.items for node in _within_its_query(item) if _is_rank(node)]
    asked = [] if select.qualify is None else list(_within_its_query(select.qualify))
    for ranking in (node for node in (*listed, *asked) if _is_rank(node)):
        yield "of each partition" if ranking.window.partition else "of all"
        if is_grouping(select):
            yield "of groups"
    if asked:
        yield "QUALIFY"
    if any(isinstance(node, ast.ColumnName) and node.column.name == "place" for i in select.items for node in _walk(i)):
        yield "in the answer"
    for test in asked if select.where is None else (*asked, *_within_its_query(select.where)):
        if isinstance(test, ast.Binary) and any(map(_is_place, (test.left, test.right))):
            yield "a place alone" if test.operator == "=" else "up to a place"


def _over(call: ast.WindowCall) -> Iterator[str]:
    """The cells of a window function over the past, or over the rows of an instant."""
    name, frame = call.call.name.name.lower(), call.window.frame
    if not call.window.order:
        yield "no order"
        return
    if not isinstance(call.window.order[0].value, ast.ColumnName) or call.window.order[0].value.column.name != "ts":
        return
    yield "no frame" if frame is None else f"frame by {'time' if frame.unit == 'RANGE' else 'rows'}"
    if name == "lead" or (frame is not None and frame.end.direction == "FOLLOWING"):
        yield "a row that waits"
    if name in ("lag", "lead", "first_value", "last_value", "nth_value"):
        yield "a value of another row"
    yield from ("a number or rank",) if name in RANKS else ()
    yield from (name,) if name in (*RANKS, *VALUES) else ()
    if function := find_aggregate(name):
        yield "an aggregate" if function.name in SUMMED else "an aggregate of all values"
    yield from ("ignore nulls",) if call.ignore_nulls else ()
    yield from ("further order",) if len(call.window.order) > 1 else ()


def _around_windows(select: ast.Select) -> Iterator[str]:
    """Where window functions over the past are."""
    calls = [node for node in _within_its_query(select) if isinstance(node, ast.WindowCall)]
    if not any(cell != "no order" for call in calls for cell in _over(call)):
        return
    if select.qualify is not None:
        yield "QUALIFY"
    if isinstance(select.tables[0], ast.QueryTable):
        yield "over a query"


def _is_rank(node: ast.Node) -> TypeGuard[ast.WindowCall]:
    return isinstance(node, ast.WindowCall) and node.call.name.name.upper() == "RANK"


def _is_place(node: ast.Expression) -> bool:
    return _is_rank(node) or (isinstance(node, ast.ColumnName) and node.column.name == "place")


def _expression(node: ast.Node) -> Iterator[str]:
    match node:
        case ast.Binary(operator):
            yield "comparison" if operator in ("=", "<>", "<", "<=", ">", ">=") else "arithmetic"
        case ast.Logical():
            yield "and, or"
        case ast.Unary("NOT"):
            yield "not"
        case ast.IsTest():
            yield "is null"
        case ast.DistinctTest():
            yield "is distinct from"
        case ast.Between():
            yield "between"
        case ast.InList():
            yield "in a list"
        case ast.Like():
            yield "like"
        case ast.Case():
            yield "case"
        case ast.Cast():
            yield "cast"
        case ast.FunctionCall(name) if name.name.lower() in users.FUNCTIONS:
            yield "a function of the user's"
        case ast.FunctionCall(name) if find_aggregate(name.name) is None:
            called = name.name.lower()
            yield called if called in ("coalesce", "nullif") else "a function"
            yield from ("json",) if called.startswith("json_") else ()
            yield from ("time zone",) if called.endswith("_utc_timestamp") else ()
            yield from ("of an array",) if called == "array_contains" else ()


def _output(select: ast.Select) -> Iterator[str]:
    if select.having is not None:
        yield "having"
    if is_grouping(select):
        yield "grouped" if select.group_by else "without groups"
    else:
        yield "distinct" if select.distinct else "plain"


def _boundaries(statement: ast.Node, streams: Sequence[Arrivals]) -> Iterator[str]:
    """Where rows stand at the very ends of windows: there an answer is wrong by one most easily."""
    times = {stream.name: {element.time for element in stream.elements} for stream in streams}
    for node in _walk(statement):
        match node:
            case ast.StreamTable(name, ast.RangeWindow(length, slide)) if name.name in times:
                rows = times[name.name]
                if length is not None and any(time + length.microseconds in rows for time in rows):
                    yield "one row comes as another goes"
                if slide is not None and any(time % slide.microseconds == 0 for time in rows):
                    yield "a row at the end of a slide"


# ---- streams and cuts ------------------------------------------------------------------------------------------------


def _stream(stream: Arrivals) -> Iterator[str]:
    times = [element.time for element in stream.elements]
    if not times:
        yield "empty"
    if stream.intervals:
        yield "intervals"
    if len(set(times)) < len(times):
        yield "ties"
    if times != sorted(times):
        yield "disorder"
    for name, kind in stream.columns[:-1]:
        values = [element.values[name] for element in stream.elements]
        if len(values) > 3 and Counter(map(repr, values)).most_common(1)[0][1] > 0.7 * len(values):
            yield "skew"
        if None in values:
            yield "null"
        doubles = [value for value in values if isinstance(value, float)]
        if any(map(math.isnan, doubles)):
            yield "nan"
        if math.inf in doubles:
            yield "infinity"
        if -math.inf in doubles:
            yield "minus infinity"
        if kind.name in ("INT", "BIGINT", "DECIMAL", "DATE", "TIMESTAMP") and set(values) & set(DOMAIN[kind.name][-2:]):
            yield "extreme"
        if any(isinstance(value, str) and not value.isascii() for value in values):
            yield "unicode"


def _cut(asked: Question, cut: Cuts) -> Iterator[str]:
    if cut.shards > 1:
        yield "several buckets"
    pairs = [(s, sizes) for s, sizes in zip(asked.streams, cut.sizes, strict=True) if s.elements]
    if all(sizes == (1,) * len(s.elements) for s, sizes in pairs):
        yield "one row per batch"
    elif not any(sizes for _, sizes in pairs):
        yield "all in one"
    else:
        yield "at random"
    for stream, sizes in pairs:
        times = [element.time for element in stream.elements]
        if any(0 < n < len(times) and times[n - 1] == times[n] for n in accumulate(sizes)):
            yield "inside a tie"


# ---- tables ----------------------------------------------------------------------------------------------------------


def _table(drawn: DrawnTable) -> Iterator[str]:
    table, log, times = drawn.table, drawn.log, drawn.times
    changes = table.kind == "changing"
    if table.kind != "temporal":
        yield "constant" if not changes else "retroactive" if table.retroactive else "looked up"
    else:
        yield from ("temporal", *_periods(drawn))
    yield "keyed" if table.key else "bag"
    if table.required:
        yield "NOT NULL"
    if any("DEFAULT" in text or f"INSERT INTO {table.name} (" in text for text in drawn.statements):
        yield "a value by default"
    names = [name for name, _ in table.columns]
    if log.filter(pl.col(UNTIL) == OPEN).select(names).is_duplicated().any():
        yield "equal rows"
    if table.source is not None:
        yield "fed"
        yield from ("fed with operations",) if table.changes is not None else ()
        yield from ("fed late",) if drawn.late else ()
    is_dated = changes and table.time_column is not None
    given = [is_dated or text.rpartition(" AT TIMESTAMP ")[1] != "" for text in drawn.statements]
    if any(given):
        yield "given times"
    if not all(given):
        yield "by the clock"
    if len(set(times)) < len(times):
        yield "several changes at one instant"
    if drawn.base:
        yield "before the query"
    if changes and drawn.base < log.height:
        yield "while the query runs"
    if any(text.startswith(f"UPDATE {table.name} SET {key} =") for text in drawn.statements for key in names):
        yield "a changed key"


def _periods(drawn: DrawnTable) -> Iterator[str]:
    elements = sorted(drawn.elements(drawn.base), key=lambda element: element.time)
    if any(element.end == FOREVER for element in elements):
        yield "a period without an end"
    if any(one.end > other.time for one, other in pairwise(elements)):
        yield "periods that overlap"
