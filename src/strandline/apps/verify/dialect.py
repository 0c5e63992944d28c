"""Typed scalar expressions as SQL text of an oracle.

The templates of a dialect are the one place where a function or an aggregate gets its translation. A template is chosen
by the name and by the type of the first argument; `*` is every type. In it, {0}, {1}, … are the arguments, {p} and {s}
precision and scale of the result, and {h} the prefix of the helpers that a database is given. Of an aggregate, {0} is
the argument, {1} the separator or the fraction, {d} DISTINCT, {f} the FILTER, {n} the same without NULLs, {w} the
requested order, and {o} that order and then the values themselves.

Where a template does not do, because a pattern, a form or a number of digits decides what to write, `written` has a
function that writes the call, or leaves it to the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final, assert_never

from strandline.core.types import Type
from strandline.logical.expressions import Call, Case, Cast, ColumnRef, Expression, Literal, UserCall, Value
from strandline.logical.udf import Definition, UserAggregate


class Untranslatable(Exception):
    """The database has no equivalent; the message names what is missing."""


Templates = Mapping[tuple[str, str], str]
Write = Callable[["Dialect", Call], str | None]


@dataclass(frozen=True, slots=True)
class Dialect:
    """Types, literals, functions, casts and aggregates in the SQL of a database."""

    name: str
    prefix: str
    types: Mapping[str, str]
    functions: Templates
    casts: Templates  # by the names of both types
    aggregates: Templates
    helpers: Sequence[str]
    quote: Callable[[str], str]
    written: Mapping[str, Write]
    array: str  # of the elements
    array_cast: str  # of an array, whose elements are called `element`
    has_full_join: bool = True
    runs_python: bool = False  # whether functions of the user's can be given to it

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
            case Call(function, arguments, kind):
                write = self.written.get(function)
                text = None if write is None else write(self, expression)
                return text or self.call(function, [self.sql(a) for a in arguments], [a.type for a in arguments], kind)
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

    def call(self, function: str, arguments: list[str], kinds: list[Type], kind: Type) -> str:
        if function in INFIX:
            return f"({f' {INFIX[function]} '.join(arguments)})"
        if function in ("=", "<>", "<", "<=", ">", ">="):
            return f"({arguments[0]} {function} {arguments[1]})"
        if function == "in":
            return f"({arguments[0]} IN ({', '.join(arguments[1:])}))"
        if function in VARIADIC:
            return f"{function}({', '.join(arguments)})"
        if function == "+" and kinds[0].name in ("INTERVAL", "BIGINT") and kinds[1].name in ("DATE", "TIMESTAMP"):
            arguments, kinds = arguments[::-1], kinds[::-1]
        families = [_family(each) for each in kinds]
        # A difference depends on both operands, everything else on the first.
        first, last = families[:1] or [""], families[-1:] or [""]
        names = (f"{function} {last[0]}", f"{function}/{len(kinds)}", function)
        for key in ((name, family) for name in names for family in (first[0], "*")):
            if key in self.functions:
                return self.functions[key].format(*arguments, h=self.prefix, p=kind.precision, s=kind.scale)
        raise Untranslatable(f"{function} of {', '.join(map(str, kinds))}")

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
        return self.casts[key].format(value, h=self.prefix, p=target.precision, s=target.scale)

    def aggregate(self, name: str, kind: Type | None, part: Aggregated) -> str:
        """An aggregate of an argument of type `kind`; None is `*`."""
        keys = ((name, "*" if kind is None else kind.name), (name, "*"))
        template = next((self.aggregates[key] for key in keys if key in self.aggregates), None)
        if template is None:
            raise Untranslatable(f"{name.upper()} of {kind or '*'}")
        return self.filled(template, kind, part)

    def user_aggregate(self, user: UserAggregate, part: Aggregated) -> str:
        """An aggregate of the user's, over the list of the values in their order."""
        return self.filled(self.user(user) + "(array_agg({d}{0} ORDER BY {o}){n})", user.arguments[0], part)

    def filled(self, template: str, kind: Type | None, part: Aggregated) -> str:
        value = part.argument or "*"
        known = f"{value} IS NOT NULL" + (f" AND {part.wanted}" if part.wanted else "")
        return template.format(
            value,
            part.parameter,
            h=self.prefix,
            d="DISTINCT " if part.distinct else "",
            f=f" FILTER (WHERE {part.wanted})" if part.wanted else "",
            n=f" FILTER (WHERE {known})",
            o=", ".join((*part.order, f"{value} ASC")),
            w=", ".join(part.order) or f"{value} ASC",
            s=0 if kind is None else kind.scale,
        )


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The parts of a call of an aggregate, as texts; `order` is with directions."""

    argument: str | None
    distinct: bool
    wanted: str | None
    order: tuple[str, ...]
    parameter: str


INFIX: Final = {"and": "AND", "or": "OR"}
VARIADIC: Final = ("coalesce", "nullif", "greatest", "least", "concat", "concat_ws")

# Written the same everywhere.
FUNCTIONS: Final[Templates] = {
    ("not", "*"): "(NOT {0})",
    ("is_null", "*"): "({0} IS NULL)",
    ("||", "*"): "({0} || {1})",
    ("like/3", "*"): "({0} LIKE {h}whole_pattern({1}, {2}) ESCAPE {2})",
    ("&", "*"): "({0} & {1})",
    ("|", "*"): "({0} | {1})",
    ("~", "*"): "(~{0})",
    ("+", "BIGINT"): "{h}add({0}, {1})",
    ("-", "BIGINT"): "{h}subtract({0}, {1})",
    ("*", "BIGINT"): "{h}multiply({0}, {1})",
    ("/", "BIGINT"): "{h}quotient({0}, {1})",
    ("%", "BIGINT"): "{h}remainder({0}, {1})",
    ("neg", "BIGINT"): "{h}subtract(CAST(0 AS BIGINT), {0})",
    ("abs", "BIGINT"): "CASE WHEN {0} < 0 THEN {h}subtract(CAST(0 AS BIGINT), {0}) ELSE {0} END",
    ("neg", "DECIMAL"): "(-{0})",
    ("neg", "DOUBLE"): "(-{0})",
    ("abs", "*"): "abs({0})",
    ("sign", "*"): "CAST(sign({0}) AS INTEGER)",
    ("floor", "BIGINT"): "{0}",
    ("ceil", "BIGINT"): "{0}",
    ("round/1", "BIGINT"): "{0}",
    ("floor", "DOUBLE"): "floor({0})",
    ("ceil", "DOUBLE"): "ceil({0})",
    ("round/1", "DOUBLE"): "{h}half_away({0})",
    ("+", "TIMESTAMP"): "{h}later({0}, {1})",
    ("- BIGINT", "TIMESTAMP"): "{h}later({0}, {h}subtract(CAST(0 AS BIGINT), {1}))",
    ("- TIMESTAMP", "TIMESTAMP"): "{h}subtract({h}micros({0}), {h}micros({1}))",
    ("+", "DATE"): "{h}days_later({0}, {1})",
    ("- BIGINT", "DATE"): "{h}days_later({0}, {h}subtract(CAST(0 AS BIGINT), {1}))",
    ("- DATE", "DATE"): "CAST({0} - {1} AS INTEGER)",
    ("length", "*"): "length({0})",
    ("substring/2", "*"): "CASE WHEN {1} < 1 THEN {0} ELSE substring({0}, {1}) END",
    ("substring/3", "*"): "{h}part({0}, {1}, {2})",
    ("replace", "*"): "CASE WHEN {1} = '' AND {2} IS NOT NULL THEN {0} ELSE replace({0}, {1}, {2}) END",
    ("starts_with", "*"): "starts_with({0}, {1})",
    ("date_trunc", "*"): "{h}in_calendar(date_trunc({0}, {1}))",
    ("year", "*"): "CAST(extract(year FROM {0}) AS INTEGER)",
    ("month", "*"): "CAST(extract(month FROM {0}) AS INTEGER)",
    ("day", "*"): "CAST(extract(day FROM {0}) AS INTEGER)",
    ("quarter", "*"): "CAST(extract(quarter FROM {0}) AS INTEGER)",
    ("week", "*"): "CAST(extract(week FROM {0}) AS INTEGER)",
    ("isoyear", "*"): "CAST(extract(isoyear FROM {0}) AS INTEGER)",
    ("doy", "*"): "CAST(extract(doy FROM {0}) AS INTEGER)",
    ("dow", "*"): "CAST(extract(dow FROM {0}) AS INTEGER)",
    ("isodow", "*"): "CAST(extract(isodow FROM {0}) AS INTEGER)",
    ("milliseconds", "*"): "({h}micros({0} - date_trunc('minute', {0}) + TIMESTAMP '1970-01-01') / 1e3)",
    ("microseconds", "*"): "CAST(extract(microseconds FROM {0}) AS INTEGER)",
    ("decade", "*"): "CAST(extract(decade FROM {0}) AS INTEGER)",
    ("century", "*"): "CAST(extract(century FROM {0}) AS INTEGER)",
    ("millennium", "*"): "CAST(extract(millennium FROM {0}) AS INTEGER)",
    ("date_bin", "*"): "{h}bin({0}, {1}, {2})",
    ("make_date", "*"): "{h}date_of({0}, {1}, {2})",
    ("make_timestamp", "*"): "{h}moment_of({0}, {1}, {2}, {3}, {4}, {5})",
    ("to_timestamp", "*"): "{h}moment_of_seconds({0})",
    ("<<", "*"): "{h}shift_left({0}, {1})",
    (">>", "*"): "CASE WHEN {1} BETWEEN 0 AND 63 THEN {0} >> {1} END",
    ("trunc/1", "BIGINT"): "{0}",
    ("trunc/1", "DOUBLE"): "trunc({0})",
    ("round/2", "DOUBLE"): "{h}round_double({0}, {1})",
    ("div", "*"): "{h}quotient({0}, {1})",
    ("gcd", "*"): "{h}gcd({0}, {1})",
    ("lcm", "*"): "{h}lcm({0}, {1})",
    ("power", "*"): "{h}power({0}, {1})",
    ("cbrt", "*"): "cbrt({0})",
    ("exp", "*"): "{h}exp({0})",
    ("ln", "*"): "CASE WHEN {0} > 0 THEN ln({0}) END",
    ("log/1", "*"): "CASE WHEN {0} > 0 THEN log({0}) END",
    ("log/2", "*"): "CASE WHEN {0} > 0 AND {0} <> 1 AND {1} > 0 THEN ln({1}) / ln({0}) END",
    ("log10", "*"): "CASE WHEN {0} > 0 THEN log({0}) END",
    ("sin", "*"): "CASE WHEN NOT {h}isinf({0}) THEN sin({0}) END",
    ("cos", "*"): "CASE WHEN NOT {h}isinf({0}) THEN cos({0}) END",
    ("tan", "*"): "CASE WHEN NOT {h}isinf({0}) THEN tan({0}) END",
    ("asin", "*"): "CASE WHEN abs({0}) <= 1 OR {h}isnan({0}) THEN asin({0}) END",
    ("acos", "*"): "CASE WHEN abs({0}) <= 1 OR {h}isnan({0}) THEN acos({0}) END",
    ("atan", "*"): "atan({0})",
    ("atan2", "*"): "atan2({0}, {1})",
    ("sinh", "*"): "sinh({0})",
    ("cosh", "*"): "cosh({0})",
    ("tanh", "*"): "tanh({0})",
    ("degrees", "*"): "{h}degrees({0})",
    ("radians", "*"): "{h}radians({0})",
    ("width_bucket", "*"): "{h}bucket({0}, {1}, {2}, {3})",
    ("isnan", "*"): "{h}isnan({0})",
    ("isinf", "*"): "{h}isinf({0})",
    ("isfinite", "*"): "(NOT {h}isnan({0}) AND NOT {h}isinf({0}))",
    ("initcap", "*"): "{h}initcap({0})",
    ("left", "*"): "left({0}, {1})",
    ("right", "*"): "CASE WHEN {1} IS NOT NULL THEN right({0}, greatest({1}, -2147483647)) END",
    ("lpad/2", "*"): "{h}padded_left({0}, {1}, ' ')",
    ("lpad/3", "*"): "{h}padded_left({0}, {1}, {2})",
    ("rpad/2", "*"): "{h}padded_right({0}, {1}, ' ')",
    ("rpad/3", "*"): "{h}padded_right({0}, {1}, {2})",
    ("repeat", "*"): "CASE WHEN CAST(length({0}) AS BIGINT) * {1} <= 1000000 THEN repeat({0}, {1}) END",
    ("translate", "*"): "translate({0}, {1}, {2})",
    ("overlay/3", "*"): "{h}overlaid({0}, {1}, {2}, CAST(length({1}) AS INTEGER))",
    ("overlay/4", "*"): "{h}overlaid({0}, {1}, {2}, {3})",
    ("split_part", "*"): "{h}nth_part({0}, {1}, {2})",
    ("contains", "*"): "(strpos({0}, {1}) > 0)",
    ("ends_with", "*"): "(right({0}, CAST(length({1}) AS INTEGER)) = {1})",
    ("ascii", "*"): "ascii({0})",
    ("chr", "*"): "CASE WHEN {0} BETWEEN 1 AND 55295 OR {0} BETWEEN 57344 AND 1114111 THEN chr({0}) END",
    ("reverse", "*"): "reverse({0})",
    ("strpos", "*"): "CAST(strpos({0}, {1}) AS INTEGER)",
    ("md5", "*"): "md5({0})",
    ("pi", "*"): "pi()",
    ("hour", "*"): "CAST(extract(hour FROM {0}) AS INTEGER)",
    ("minute", "*"): "CAST(extract(minute FROM {0}) AS INTEGER)",
    ("second", "*"): "({h}micros({0} - date_trunc('minute', {0}) + TIMESTAMP '1970-01-01') / 1e6)",
    ("epoch", "*"): "({h}micros({0}) / 1e6)",
    ("sqrt", "*"): "CASE WHEN {0} >= 0 THEN sqrt({0}) END",
    ("[]", "*"): "CASE WHEN {1} BETWEEN 1 AND 2147483647 THEN ({0})[CAST({1} AS INTEGER)] END",
    ("cardinality", "*"): "CAST(cardinality({0}) AS INTEGER)",
}

AGGREGATES: Final[Templates] = {
    ("count", "*"): "count({d}{0}){f}",
    ("min", "*"): "min({0}){f}",
    ("max", "*"): "max({0}){f}",
    ("bool_and", "*"): "bool_and({0}){f}",
    ("every", "*"): "bool_and({0}){f}",
    ("bool_or", "*"): "bool_or({0}){f}",
    ("sum", "INT"): "CAST(sum({d}{0}){f} AS BIGINT)",
    ("percentile_disc", "*"): "percentile_disc({1}) WITHIN GROUP (ORDER BY {w}){f}",
    ("string_agg", "*"): "string_agg({d}{0}, {1} ORDER BY {o}){f}",
    ("array_agg", "*"): "array_agg({d}{0} ORDER BY {o}){f}",
}


def _family(kind: Type) -> str:
    """INTERVALs are microseconds, and arithmetic has 64 bits only."""
    return "BIGINT" if kind.name in ("INT", "INTERVAL") else kind.name
