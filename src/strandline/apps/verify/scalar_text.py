"""Scalar expressions, with subqueries, aggregates and ranks, as SQL text of an oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.apps.verify.dialect import Aggregated
from strandline.apps.verify.over_text import (
    ROWS_IN,
    WindowTexts,
    rows_in_frame,
    stage_scope,
    value_text,
    window_text,
)
from strandline.apps.verify.sql_text import sort_direction
from strandline.core.types import BIGINT, BOOLEAN, NULL, VARCHAR
from strandline.functions.aggregates import AggregateFunction, find_aggregate
from strandline.functions.oracles import Untranslatable
from strandline.functions.signatures import meet
from strandline.logical.expressions import ColumnRef, Expression, children
from strandline.logical.udf import UserAggregate
from strandline.sql import ast
from strandline.sql.binder.aggregates import bind_aggregate, described
from strandline.sql.binder.expressions import Operand, Scalars, Subquery, call
from strandline.sql.binder.literals import cast_to
from strandline.sql.binder.scope import Scope
from strandline.sql.binder.window_functions import SUMMED

if TYPE_CHECKING:
    from strandline.apps.verify.translate import Translation

_OF_FRAME: Final = ("first_value", "last_value", "nth_value")


class Texts(Scalars):
    """Binds scalar expressions; their subqueries and aggregates are columns whose ids are SQL texts.

    Subqueries over tables that are not retroactive have their rows at `row_time`, where the query reads a stream.
    """

    def __init__(self, translation: Translation, scope: Scope, clause: str, row_time: str | None) -> None:
        super().__init__(scope, clause)
        self.translation = translation
        self.dialect = translation.dialect
        self.row_time = row_time
        self.windows: WindowTexts | None = None  # of window functions over a stage

    def subquery(self, node: Subquery) -> Expression:
        translation = self.translation
        if self.row_time is not None and translation.is_looked_up(node.query):
            translation = replace(translation, now=self.row_time)
        inner = translation.query(node.query, self.scope)
        if isinstance(node, ast.Exists):
            return ColumnRef(f"EXISTS ({inner.sql})", BOOLEAN)
        if isinstance(node, ast.ScalarQuery):
            # LIMIT 1 leaves several rows of one value where they are level.
            value = f"SELECT DISTINCT * FROM ({inner.sql}) AS s" if _is_ordered(node.query) else inner.sql
            return ColumnRef(f"({value})", inner.columns[0].type)
        column = inner.columns[0]
        asked = Operand(ColumnRef("s.c1", column.type), node.span)
        test = call(node.operator, [self.operand(node.operand), asked], node.span)
        one, two = (self.dialect.sql(part) for part in children(test))
        listed = inner.sql if two == "s.c1" else f"SELECT {two} FROM ({inner.sql}) AS s"
        return ColumnRef(f"({one} {node.operator} {node.quantifier} ({listed}))", BOOLEAN)

    def window_function(self, node: ast.WindowCall) -> Expression:
        call, name = node.call, node.call.name.name.lower()
        past = self.windows if self.windows is not None and self.windows.is_past(node) else None
        window, _ = window_text(node, self.text, self.windows)
        function = find_aggregate(name)
        if function is None and isinstance(call.definition, UserAggregate):
            function = described(call.definition)
        if function is not None:
            if past is None or (function.name in SUMMED and not isinstance(call.definition, UserAggregate)):
                return self.aggregate(function, call, window)
            return self.aggregate_of_frame(function, node, past)
        arguments = () if isinstance(call.arguments, ast.Star) else call.arguments
        values = [self.bind(argument) for argument in arguments]
        kind = values[0].type if values else BIGINT
        if len(values) == 3:
            kind = meet([values[0].type, values[2].type]) or kind
            values = [cast_to(values[0], kind), values[1], cast_to(values[2], kind)]
        texts = [
            text.text if number == 1 else self.dialect.sql(values[number]) for number, text in enumerate(arguments)
        ]
        by_time = name in _OF_FRAME and (node.window.frame is None or node.window.frame.unit == "RANGE")
        if past is not None and (by_time or (node.ignore_nulls and not self.dialect.ignores_nulls)):
            return ColumnRef(value_text(node, texts, self.text, past), kind)
        if node.ignore_nulls and not self.dialect.ignores_nulls:
            raise Untranslatable("IGNORE NULLS")
        nulls = " IGNORE NULLS" if node.ignore_nulls else ""
        return ColumnRef(f"{name}({', '.join(texts)}{nulls}) OVER ({window})", kind)

    def aggregate_of_frame(self, function: AggregateFunction, node: ast.WindowCall, past: WindowTexts) -> Expression:
        """An aggregate that is no window function elsewhere, as a subquery over the rows of the frame."""
        inside = Texts(self.translation, stage_scope(past.columns, node, ROWS_IN), self.clause, None)
        found = inside.aggregate(function, node.call)
        rows = rows_in_frame(node, lambda key, alias: (inside if alias == ROWS_IN else self).text(key), past)
        return ColumnRef(f"(SELECT {self.dialect.sql(found)} {rows})", found.type)

    def text(self, node: ast.Expression) -> str:
        return self.dialect.sql(self.bind(node))

    def grouping(self, node: ast.FunctionCall) -> Expression:
        """GROUPING(a, b): a bit for each key, 1 where it is left out."""
        keys = () if isinstance(node.arguments, ast.Star) else node.arguments
        listed = ", ".join(self.dialect.sql(self.bind(key)) for key in keys)
        return ColumnRef(f"CAST(GROUPING({listed}) AS BIGINT)", BIGINT)

    def aggregate(self, function: AggregateFunction, node: ast.FunctionCall, over: str | None = None) -> Expression:
        inside = Texts(self.translation, self.scope, "an aggregate", self.row_time)
        column = self.scope.time()
        time = None if column is None else ColumnRef(column.id, column.type)
        kind = bind_aggregate(function, node, inside.bind, inside.condition, time).type
        arguments = () if isinstance(node.arguments, ast.Star) else node.arguments
        items = node.within or node.order
        order = [self.dialect.sql(inside.bind(item.value)) + sort_direction(item) for item in items]
        if function.form in ("within group", "fraction within group"):
            value: Expression | None = inside.bind(node.within[0].value)
            parameter = arguments[0].text if arguments else ""
        else:
            value = inside.bind(arguments[0]) if arguments else None
            parameter = self.dialect.sql(inside.bind(arguments[1])) if len(arguments) > 1 else ""
        if function.name in ("first", "last") and not order:
            assert time is not None, "the binder has refused an order that is not clear"
            order = [f"{time.id} ASC"]
        user = node.definition if isinstance(node.definition, UserAggregate) else None
        if value is not None and (user is not None or value.type == NULL):
            value = cast_to(value, VARCHAR if user is None else user.arguments[0])
        given = None if value is None else self.dialect.sql(value)
        condition = None if node.filter is None else self.dialect.sql(inside.condition(node.filter))
        if function.form == "pair":
            both = " AND ".join(f"{self.dialect.sql(inside.bind(side))} IS NOT NULL" for side in arguments)
            condition = both if condition is None else f"{condition} AND {both}"
        part = Aggregated(given, node.distinct, condition, tuple(order), parameter, over)
        if user is not None:
            return ColumnRef(self.dialect.user_aggregate(user, part), kind)
        return ColumnRef(self.dialect.aggregate(function.name, None if value is None else value.type, part), kind)


def _is_ordered(query: ast.Query) -> bool:
    return isinstance(query.body if isinstance(query, ast.With) else query, ast.Ordered)
