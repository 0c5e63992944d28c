"""Typed scalar expressions as SQL text of an oracle.

What a function or an aggregate is there, its declaration says (`functions/oracles.py`); types, literals and casts are
the dialect's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final, assert_never

from strandline.core.types import Type
from strandline.functions.aggregates import AGGREGATES, AggregateFunction
from strandline.functions.oracles import Spellings, SqlCall, Untranslatable, spelling_for
from strandline.functions.registry import FUNCTIONS
from strandline.functions.signatures import Function
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall, Value
from strandline.logical.udf import Definition, UserAggregate

SHARED_TYPES: Final = {
    "BOOLEAN": "BOOLEAN",
    "INT": "INTEGER",
    "BIGINT": "BIGINT",
    "INTERVAL": "BIGINT",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """Types, literals, functions, casts and aggregates in the SQL of a database."""

    name: str
    prefix: str
    types: Mapping[str, str]
    own: Callable[[Function | AggregateFunction], Spellings | None]  # where a declaration has a spelling just for it
    casts: Mapping[tuple[str, str], str]  # by the names of both types, see `cast_table`
    quote: Callable[[str], str]
    array: str  # of the elements
    unnest: str  # of an array, as a table of its elements and their positions
    array_cast: str  # of an array, whose elements are called `element`
    row_id: str  # the column that tells equal rows of a table apart
    has_full_join: bool = True
    ignores_nulls: bool = True  # whether window functions take IGNORE NULLS
    runs_python: bool = False  # whether functions of the user's can be given to it
    correlates_grouping_sets: bool = True  # whether they are right in a subquery at the time of an outer row

    def type_name(self, kind: Type) -> str:
        if kind.element is not None:
            return f"{self.type_name(kind.element)}[]"
        return f"DECIMAL({kind.precision},{kind.scale})" if kind.name == "DECIMAL" else self.types[kind.name]

    def sql(self, expression: Expression) -> str:
        """The text of an expression; the ids of its columns are texts already."""
        match expression:
            case Literal(value, kind):
                return self.literal(value, kind)
            case ColumnRef(id, _):
                return id
            case Cast(operand, kind):
                return self.cast(self.sql(operand), operand.type, kind)
            case Case(branches, otherwise, kind):
                listed = " ".join(f"WHEN {self.sql(c)} THEN {self.sql(r)}" for c, r in branches)
                return f"CASE {listed} ELSE {self.sql(otherwise)} END"
            case Call():
                return self.call(expression)
            case UserCall(user, arguments):
                return f"{self.user(user)}({', '.join(map(self.sql, arguments))})"
            case _:
                assert_never(expression)

    def user(self, definition: Definition) -> str:
        """Name of a user-defined function in the database."""
        if not self.runs_python:
            kind = "an aggregate" if isinstance(definition, UserAggregate) else "a function"
            raise Untranslatable(f"{definition.name}, {kind} of the user's")
        return f'"{self.prefix}user_{definition.name}"'

    def literal(self, value: Value, kind: Type) -> str:
        if value is None:
            return f"CAST(NULL AS {self.type_name(kind)})"
        match value:
            case bool():
                return "TRUE" if value else "FALSE"
            case str():
                return self.quote(value)
            case tuple():
                assert kind.element is not None, "only arrays have several values"
                return self.array_of([self.literal(element, kind.element) for element in value], kind)
            case datetime():
                text = value.isoformat(" ")
            case date():
                text = value.isoformat()
            case Decimal():
                text = format(value, "f")
            case _:
                text = repr(value)
        return f"CAST('{text}' AS {self.type_name(kind)})"

    def array_of(self, elements: Sequence[str], kind: Type) -> str:
        return f"CAST({self.array.format(', '.join(elements))} AS {self.type_name(kind)})"

    def call(self, call: Call) -> str:
        function, types = FUNCTIONS[call.function], [argument.type for argument in call.arguments]
        # INTERVALs are microseconds, and arithmetic has 64 bits only.
        names = ["BIGINT" if kind.name in ("INT", "INTERVAL") else kind.name for kind in types]
        spelling = spelling_for(self.own(function), names) or spelling_for(function.sql, names)
        if spelling is None:
            raise Untranslatable(f"{call.function} of {', '.join(map(str, types))}")
        arguments = tuple(map(self.sql, call.arguments))
        return SqlCall(call, arguments, self.type_name(call.type), self.prefix, self.quote).spelled(spelling)

    def cast(self, value: str, source: Type, target: Type) -> str:
        if source == target:
            return value
        key = next((k for k in ((source.name, target.name), ("*", target.name)) if k in self.casts), None)
        if source.name == "NULL":
            return f"CAST({value} AS {self.type_name(target)})"
        if source.element is not None and target.element is not None:
            element = self.cast("element", source.element, target.element)
            return self.array_cast.format(value, element, self.type_name(target))
        if key is None:
            raise Untranslatable(f"CAST of {source} to {target}")
        names = {"h": self.prefix, "t": self.type_name(target), "p": target.precision, "s": target.scale}
        return self.casts[key].format(value, **names)

    def aggregate(self, name: str, kind: Type | None, part: Aggregated) -> str:
        """An aggregate of an argument of type `kind`; None is `*`."""
        function, names = AGGREGATES[name], ["*" if kind is None else kind.name]
        spelling = spelling_for(self.own(function), names) or spelling_for(function.sql, names)
        if spelling is None:
            raise Untranslatable(f"{name.upper()} of {kind or '*'}")
        assert isinstance(spelling, str), "the spelling of an aggregate is a template"
        return self.filled(spelling, kind, part)

    def user_aggregate(self, user: UserAggregate, part: Aggregated) -> str:
        """An aggregate of the user's, over the list of the values in their order."""
        return self.filled(self.user(user) + "(array_agg({d}{0} ORDER BY {o}){n})", user.arguments[0], part)

    def filled(self, template: str, kind: Type | None, part: Aggregated) -> str:
        value = part.argument or "*"
        over = "" if part.over is None else f" OVER ({part.over})"
        present = f"{value} IS NOT NULL" + (f" AND {part.condition}" if part.condition else "")
        return template.format(
            value,
            part.parameter,
            h=self.prefix,
            d="DISTINCT " if part.distinct else "",
            f=(f" FILTER (WHERE {part.condition})" if part.condition else "") + over,
            n=f" FILTER (WHERE {present}){over}",
            o=", ".join((*part.order, f"{value} ASC")),
            w=", ".join(part.order) or f"{value} ASC",
            s=0 if kind is None else kind.scale,
        )


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The parts of a call of an aggregate, as texts; `order` is with directions."""

    argument: str | None
    distinct: bool
    condition: str | None  # of FILTER
    order: tuple[str, ...]
    parameter: str
    over: str | None = None  # the window, if it is a window function


def cast_table(*rows: tuple[str, str, str]) -> dict[tuple[str, str], str]:
    """Templates of casts by the names of both types, from rows of source types, target types and template.

    A template has the value at {0}, the prefix of helpers at {h}, and the type, precision and scale of the target at
    {t}, {p} and {s}; `*` is a source of any type.
    """
    return {(a, b): template for source, target, template in rows for a in source.split() for b in target.split()}
