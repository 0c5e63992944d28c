"""What a random question covers, seen from the question itself and not from what its writer meant to write.

A cell is a feature of the language or of streams. Every cell must be in at least 1 % of the questions of a long run:
what is hardly ever asked is not tested. A new feature of the language gets its cells here, its way into questions in
`strategies.py`, and its translation in `strandline/verify/dialect.py` or `translate.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from strandline.algebra.aggregates import AGGREGATES, find_aggregate
from strandline.lang import ast
from strandline.lang.groups import is_grouping
from strandline.lang.parser import parse
from strandline.lang.scalars import Subquery
from strategies import Question
from support import DOMAIN, Arrivals, Cuts

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
    ),
    "windows over": ("a stream", "a subquery", "a named query", "changes"),
    "streams": ("ties", "disorder", "empty", "skew", "null", "nan", "infinity", "extreme", "unicode", "intervals"),
    "joins": ("inner", "left", "right", "full", "cross", "semi", "anti", "using", "natural", "self", "theta"),
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
        "in",
        "not in",
        "any",
        "all",
        "correlated",
        "nested",
        "two levels out",
        "scalar",
        "in FROM",
        "named",
    ),
    "aggregates": (*(name for name in AGGREGATES), "distinct values", "filter"),
    "outputs": ("plain", "distinct", "grouped", "having", "without groups", "changes", "first rows", "granules"),
    "cuts": ("one row per batch", "all in one", "at random", "inside a tie", "several buckets"),
}


def cells(asked: Question, cut: Cuts) -> set[str]:
    """The cells that a question and the way it is fed are in, as `group: cell`."""
    found = {f"streams: {cell}" for stream in asked.streams for cell in _stream(stream)}
    found |= {f"cuts: {cell}" for cell in _cut(asked, cut)}
    statements = parse(asked.text)
    kinds = ast.CreateStreamAs | ast.CreateView | ast.CommonTable
    named = {s.name.name.lower() for each in statements for s in _walk(each) if isinstance(s, kinds)}
    for statement in statements:
        found |= set(_syntax(statement, named))
    return found


# ---- syntax ----------------------------------------------------------------------------------------------------------


def _walk(node: ast.Node) -> Iterator[ast.Node]:
    yield node
    for child in ast.children(node):
        yield from _walk(child)


def _syntax(statement: ast.Node, named: set[str]) -> Iterator[str]:
    for node in _walk(statement):
        match node:
            case ast.StreamTable(name, window, _):
                over = "a named query" if name.name.lower() in named else "a stream"
                if over == "a named query":
                    yield "subqueries: named"
                yield from _window(window, over)
                if node.granularity is not None:
                    yield "outputs: granules"
            case ast.QueryTable(query, window, _):
                yield "subqueries: in FROM"
                yield from _window(window, "changes" if isinstance(query, ast.Changes) else "a subquery")
            case ast.Changes():
                yield "outputs: changes"
            case ast.Ordered():
                yield "outputs: first rows"
            case ast.Join():
                yield from (f"joins: {cell}" for cell in _join(node))
            case ast.UnionAll():
                yield "sets: union all"
            case ast.SetOperation(operator, _, _):
                yield f"sets: {operator.lower()}"
            case ast.Exists() | ast.Quantified() | ast.ScalarQuery():
                yield from (f"subqueries: {cell}" for cell in _subquery(node))
            case ast.Function(name, _):
                yield from _aggregate(node)
            case ast.Select():
                yield from (f"outputs: {cell}" for cell in _output(node))


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
        case ast.SessionWindow():
            yield "windows: session"
    yield f"windows over: {over}"


def _join(join: ast.Join) -> Iterator[str]:
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
        yield "exists"
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


def _aggregate(node: ast.Function) -> Iterator[str]:
    function = find_aggregate(node.name.name)
    if function is not None:
        yield f"aggregates: {function.name}"
        if node.distinct:
            yield "aggregates: distinct values"
        if node.filter is not None:
            yield "aggregates: filter"


def _output(select: ast.Select) -> Iterator[str]:
    if select.having is not None:
        yield "having"
    if is_grouping(select):
        yield "grouped" if select.group_by else "without groups"
    else:
        yield "distinct" if select.distinct else "plain"


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
        if any(map(math.isinf, doubles)):
            yield "infinity"
        if kind.name in ("INT", "BIGINT", "DECIMAL", "DATE", "TIMESTAMP") and set(values) & set(DOMAIN[kind.name][-2:]):
            yield "extreme"
        if any(isinstance(value, str) and not value.isascii() for value in values):
            yield "unicode"


def _cut(asked: Question, cut: Cuts) -> Iterator[str]:
    if cut.buckets > 1:
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
