"""Binding of scalar expressions: from syntax to typed calls over the columns in scope.

Overloads are resolved, and the casts that a function asks for become explicit. What only some clauses may contain, as
subqueries, aggregates, GROUPING and window functions, is refused here; the binders of those clauses override that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from strandline.core.errors import BindError, Span
from strandline.core.types import BOOLEAN, DOUBLE, INTERVAL, NULL, TIMESTAMP, VARCHAR, Column, Type
from strandline.functions.aggregates import AGGREGATES, AggregateFunction, find_aggregate
from strandline.functions.datetimes import PARTS, part_of
from strandline.functions.registry import ALIASES, FUNCTIONS, check, resolve, suggestion
from strandline.functions.signatures import ARRAY_HINT, FunctionError, castable, is_implicitly_castable, meet
from strandline.functions.spellings import SPELLINGS
from strandline.logical.expressions import Call, Case, ColumnRef, Expression, Literal, UserCall, extent
from strandline.logical.udf import UserAggregate, UserFunction
from strandline.sql import ast
from strandline.sql.binder.aggregates import described
from strandline.sql.binder.literals import article, cast_to, number, read
from strandline.sql.binder.scope import Scope
from strandline.sql.dialects import names as other_dialects
from strandline.sql.parser.expressions import MONTHS

# BETWEEN and CASE x WHEN repeat their operand. Nested in each other they would repeat it exponentially often.
MAX_REPEATED_NODES: Final = 1_000

# Names of operators in `FUNCTIONS` that look like functions, but are not written as calls.
OPERATOR_WORDS: Final = frozenset(("neg", "is_null", "in", "like", "similar", "match", "and", "or", "not"))
# Functions that have a meaning only over a window.
WINDOW_FUNCTIONS: Final = frozenset(
    ("row_number", "rank", "dense_rank", "lag", "lead", "first_value", "last_value", "nth_value")
)
COMPARISONS: Final = frozenset(("=", "<>", "<", "<=", ">", ">=", "in"))


class Places:
    """Spans of the uses of columns, by the identity of their nodes: equal nodes have many spans."""

    def __init__(self) -> None:
        self.spans: dict[int, tuple[Expression, Span]] = {}

    def note(self, value: ColumnRef, span: Span) -> ColumnRef:
        self.spans[id(value)] = (value, span)  # the node is kept, so that its identity is not reused
        return value

    def span(self, value: Expression) -> Span | None:
        noted = self.spans.get(id(value))
        return noted[1] if noted else None


@dataclass(frozen=True, slots=True)
class Operand:
    """A bound argument, with its span. `is_untyped` marks a text literal, which takes the type that is needed."""

    value: Expression
    span: Span
    is_untyped: bool = False

    @property
    def type(self) -> Type:
        return NULL if self.is_untyped else self.value.type


Subquery: TypeAlias = ast.Exists | ast.Quantified | ast.ScalarQuery


class Scalars:
    """Binds the scalar expressions of one clause over one scope."""

    def __init__(self, scope: Scope, clause: str) -> None:
        self.scope = scope
        self.clause = clause
        self.places = Places()

    def subquery(self, node: Subquery) -> Expression:
        hint = "Use subqueries in WHERE, HAVING and the SELECT list, outside of aggregates."
        raise node.error(f"cannot use a subquery in {self.clause}", "misplaced-subquery", hint)

    def window_function(self, node: ast.WindowCall) -> Expression:
        name = node.call.name.name.upper()
        hint = f"Write QUALIFY {name}(…) OVER (…) <= 10, or compute it in a subquery in FROM."
        message = f"window function {name} is not allowed in {self.clause}"
        raise node.error(message, "misplaced-window-function", hint)

    def aggregate(self, function: AggregateFunction, node: ast.FunctionCall) -> Expression:
        if self.clause == "an aggregate":
            hint = "Aggregate in a subquery in FROM, and aggregate that."
            raise node.error("aggregate calls cannot be nested", "nested-aggregate", hint)
        hints = {"WHERE": "Put conditions on aggregates into HAVING."}
        hint = hints.get(self.clause, "Aggregate in a subquery in FROM.")
        raise node.error(f"aggregate {function.name} is not allowed in {self.clause}", "aggregate-not-allowed", hint)

    def grouping(self, node: ast.FunctionCall) -> Expression | None:
        """What GROUPING(…) means, where there are groups."""
        return None

    def key(self, node: ast.Expression) -> Expression:
        """A key or an argument of a window function over the rows that it sees."""
        return self.bind(node)

    def key_condition(self, node: ast.Expression) -> Expression:
        """The condition of FILTER of a window function."""
        return self.condition(node, "FILTER")

    def condition(self, node: ast.Expression, what: str | None = None) -> Expression:
        """A BOOLEAN; NULL is one too."""
        operand = self.operand(node)
        if operand.type not in (BOOLEAN, NULL):
            hint = "Compare it with something, as in x > 0 or x IS NOT NULL."
            message = f"argument of {what or self.clause} must be a condition, not {article(operand.type)}"
            raise node.error(message, "not-boolean", hint)
        return _fitted(operand, BOOLEAN)

    def operand(self, node: ast.Expression) -> Operand:
        return Operand(self.bind(node), node.span, isinstance(node, ast.Text))

    def bind(self, node: ast.Expression) -> Expression:
        match node:
            case ast.Number(digits):
                return number(digits, node.span)
            case ast.Text(text):
                return Literal(text, VARCHAR)
            case ast.Truth(truth):
                return Literal(truth, BOOLEAN)
            case ast.Null():
                return Literal(None, NULL)
            case ast.TypedText(kind, text):
                return read(text, kind, node.span)
            case ast.Interval(microseconds):
                return Literal(microseconds, INTERVAL)
            case ast.ColumnName() if (valid := self.scope.validity(node)) is not None:
                return valid
            case ast.ColumnName():
                column = self.scope.column(node)
                return self.places.note(ColumnRef(column.id, column.type), node.span)
            case ast.Unary(operator, operand):
                return self.unary(operator, operand, node.span)
            case ast.Binary("~" | "~*" | "!~" | "!~*" as operator, left, right):
                return self.regexp_test(operator, left, right, node.span)
            case ast.Binary(operator, left, right):
                return self.apply("power" if operator == "^" else operator, (left, right), node.span)
            case ast.Logical(operator, operands):
                return self.apply(operator.lower(), operands, node.span)
            case ast.IsTest():
                return self.is_test(node)
            case ast.DistinctTest():
                return self.distinct_test(node)
            case ast.Between():
                return self.between(node)
            case ast.InList(operand, items, negated):
                return _negated(self.apply("in", (operand, *items), node.span), negated)
            case ast.Exists() | ast.Quantified() | ast.ScalarQuery():
                return self.subquery(node)
            case ast.Like(operand, pattern, negated, escape, similar):
                operands = (operand, pattern) if escape is None else (operand, pattern, escape)
                return _negated(self.apply("similar" if similar else "like", operands, node.span), negated)
            case ast.Case():
                return self.case(node)
            case ast.Cast():
                return self.cast(node)
            case ast.FunctionCall():
                return self.function(node)
            case ast.WindowCall():
                return self.window_function(node)
            case _:
                assert_never(node)

    def apply(self, function: str, nodes: tuple[ast.Expression, ...], span: Span) -> Expression:
        return call(function, [self.operand(node) for node in nodes], span)

    def unary(self, operator: str, node: ast.Expression, span: Span) -> Expression:
        if operator == "NOT":
            return self.apply("not", (node,), span)
        if isinstance(node, ast.Number):
            return number(node.digits if operator == "+" else f"-{node.digits}", span)
        if operator in ("-", "~"):
            return self.apply("neg" if operator == "-" else "~", (node,), span)
        operand = self.operand(node)
        call("neg", [operand], span)  # + changes nothing, but is defined where - is defined
        return operand.value

    def regexp_test(self, operator: str, text: ast.Expression, pattern: ast.Expression, span: Span) -> Expression:
        operands = [self.operand(text), self.operand(pattern)]
        if operator.endswith("*"):
            operands.append(Operand(Literal("i", VARCHAR), span))
        return _negated(call("regexp_like", operands, span), operator.startswith("!"))

    def is_test(self, node: ast.IsTest) -> Expression:
        if node.what == "NULL":
            return _negated(self.apply("is_null", (node.operand,), node.span), node.negated)
        # x IS TRUE is never NULL: an unknown x is not true, and it is not false.
        truth = self.condition(node.operand, f"IS {node.what}")
        if node.what == "UNKNOWN":
            return _negated(Call("is_null", (truth,), BOOLEAN), node.negated)
        truth = _negated(truth, node.what == "FALSE")
        return _negated(Call("coalesce", (truth, Literal(False, BOOLEAN)), BOOLEAN), node.negated)

    def distinct_test(self, node: ast.DistinctTest) -> Expression:
        left, right = self.operand(node.left), self.operand(node.right)
        for operand in (left, right):
            _check_repeatable(operand)
        null_tests = [call("is_null", [operand], node.span) for operand in (left, right)]
        # Unknown only if one of them is NULL: then they are the same if both are.
        same = (call("=", [left, right], node.span), Call("and", tuple(null_tests), BOOLEAN))
        return _negated(Call("coalesce", same, BOOLEAN), not node.negated)

    def between(self, node: ast.Between) -> Expression:
        operand = self.operand(node.operand)
        low, high = self.operand(node.low), self.operand(node.high)
        for repeated in (operand, low, high) if node.symmetric else (operand,):
            _check_repeatable(repeated)
        within = _within(operand, low, high, node.span)
        if node.symmetric:
            within = Call("or", (within, _within(operand, high, low, node.span)), BOOLEAN)
        return _negated(within, node.negated)

    def case(self, node: ast.Case) -> Expression:
        subject = None if node.operand is None else self.operand(node.operand)
        if subject is not None:
            _check_repeatable(subject)
        conditions = [self.when(subject, condition) for condition, _ in node.branches]
        results = [self.operand(result) for _, result in node.branches]
        if node.otherwise is not None:
            results.append(self.operand(node.otherwise))
        kind = meet([result.type for result in results])
        if kind is None:
            kinds = " and ".join(dict.fromkeys(str(result.value.type) for result in results))
            raise node.error(f"CASE types {kinds} cannot be matched", "type-mismatch", "CAST them to one type.")
        fitted = [_fitted(result, kind) for result in results]
        otherwise = Literal(None, kind) if node.otherwise is None else fitted.pop()
        return Case(tuple(zip(conditions, fitted, strict=True)), otherwise, kind)

    def when(self, subject: Operand | None, node: ast.Expression) -> Expression:
        if subject is None:
            return self.condition(node, "WHEN")
        return call("=", [subject, self.operand(node)], node.span)

    def cast(self, node: ast.Cast) -> Expression:
        value, kind = self.bind(node.operand), node.type.type
        if not castable(value.type, kind):
            raise node.error(f"cannot cast {value.type} to {kind}", "cannot-cast", _cast_hint(value.type))
        return cast_to(value, kind)

    def function(self, node: ast.FunctionCall) -> Expression:
        name = node.name.name.lower()
        if name == "grouping" and (grouping := self.grouping(node)) is not None:
            return grouping
        if (aggregate := find_aggregate(name)) is not None:
            return self.aggregate(aggregate, node)
        if isinstance(node.definition, UserAggregate):
            return self.aggregate(described(node.definition), node)
        clauses = {"FILTER": node.filter, "DISTINCT": node.distinct, "ORDER BY": node.order or node.within}
        for words in (words for words, clause in clauses.items() if clause):
            hint = "Remove it, or use an aggregate."
            raise node.error(f"{words} specified, but {name} is not an aggregate", "type-mismatch", hint)
        if isinstance(node.arguments, ast.Star):
            hint = "Only COUNT(*) takes a star."
            raise node.arguments.error(f"{name} does not take *", "type-mismatch", hint)
        if node.definition is not None:
            return self.user_call(node.definition, node.arguments, node.span)
        if name in OPERATOR_WORDS:
            hint = f"Write {FUNCTIONS[name].usage}."
            raise node.name.error(f"function {name} does not exist", "unknown-function", hint)
        if name in WINDOW_FUNCTIONS:
            hint = f"Write {name.upper()}(…) OVER (PARTITION BY k ORDER BY ts)."
            raise node.error(f"window function {name} requires an OVER clause", "missing-over", hint)
        if name in ("extract", "date_part"):
            return self.part(name, node.arguments, node.span)
        if name == MONTHS:
            hint = "Write ts + INTERVAL 1 MONTH or ts - INTERVAL 1 MONTH; elsewhere use DAYS."
            raise node.error("an INTERVAL of months has no fixed length", "unknown-unit", hint)
        if name in SPELLINGS and name not in FUNCTIONS and name not in ALIASES:
            hint = f"Write {' or '.join(spelling.written for spelling in SPELLINGS[name])}."
            raise node.error(f"{name} does not accept these arguments", "type-mismatch", hint)
        if name == "position" and len(node.arguments) == 2:
            return self.apply("strpos", node.arguments[::-1], node.span)
        if name in ("substring", "substr") and len(node.arguments) == 2:
            text, second = map(self.operand, node.arguments)
            if second.value.type == VARCHAR:
                return call("match", [text, second], node.span)
        if name == "to_timestamp" and len(node.arguments) == 1:
            text = self.operand(node.arguments[0])
            if text.value.type == VARCHAR:  # a number is counted in seconds
                return _fitted(text, TIMESTAMP)
        if name not in FUNCTIONS and name not in ALIASES:
            known = other_dialects.FUNCTIONS.get(name) or suggestion(name, (*FUNCTIONS, *ALIASES, *AGGREGATES))
            raise node.name.error(f"function {name} does not exist", "unknown-function", known)
        return call(name, [self.operand(part) for part in node.arguments], node.span)

    def user_call(self, function: UserFunction, nodes: tuple[ast.Expression, ...], span: Span) -> Expression:
        operands = [self.operand(node) for node in nodes]
        pairs = list(zip(operands, function.arguments, strict=False))
        if len(nodes) != len(function.arguments) or not all(
            is_implicitly_castable(operand.type, kind) for operand, kind in pairs
        ):
            given = ", ".join(str(operand.value.type) for operand in operands)
            message = f"{function.name} does not accept ({given})"
            raise BindError(message, code="type-mismatch", hint=f"It is declared as {function}.", span=span)
        return UserCall(function, tuple(_fitted(operand, kind) for operand, kind in pairs))

    def part(self, name: str, arguments: tuple[ast.Expression, ...], span: Span) -> Expression:
        """EXTRACT is the function of its unit; date_part is the same as a DOUBLE."""
        if len(arguments) != 2 or not isinstance(arguments[0], ast.Text):
            usage = "EXTRACT(year FROM ts)" if name == "extract" else "date_part('year', ts)"
            raise BindError(
                f"{name} needs a unit and an instant", code="type-mismatch", hint=f"Write {usage}.", span=span
            )
        unit = part_of(arguments[0].value)
        if unit is None:
            hint = f"Units are {', '.join(PARTS)}."
            raise arguments[0].error(f"unknown unit {arguments[0].value} of {name}", "unknown-unit", hint)
        part = self.apply(unit, arguments[1:], span)
        return part if name == "extract" else cast_to(part, DOUBLE)


def call(function: str, operands: list[Operand], span: Span) -> Expression:
    """Resolve the overload for the operands, and apply it with its casts."""
    try:
        resolved = resolve(function, tuple(operand.type for operand in operands))
        pairs = zip(operands, resolved.argument_types, strict=True)
        arguments = tuple(_fitted(operand, kind) for operand, kind in pairs)
        check(resolved.function, arguments)
    except FunctionError as error:
        hint = "CAST them so that all have one type." if function in COMPARISONS else error.hint
        if any(operand.type.element is not None for operand in operands):
            hint = error.hint
        error_span = span if error.argument is None else operands[error.argument].span
        raise BindError(error.message, code="type-mismatch", hint=hint, span=error_span) from None
    return Call(resolved.function, arguments, resolved.result)


def _within(operand: Operand, low: Operand, high: Operand, span: Span) -> Expression:
    above, below = call(">=", [operand, low], span), call("<=", [operand, high], span)
    return Call("and", (above, below), BOOLEAN)


def equality(one: Column, two: Column, span: Span) -> Expression:
    """The equality of two columns; `span` is its place in the text."""
    return call("=", [Operand(ColumnRef(column.id, column.type), span) for column in (one, two)], span)


def _negated(value: Expression, negated: bool) -> Expression:
    return Call("not", (value,), BOOLEAN) if negated else value


def _fitted(operand: Operand, kind: Type) -> Expression:
    """The operand in the type that is needed; a text literal is read as a value of that type."""
    if operand.is_untyped and kind != VARCHAR:
        assert isinstance(operand.value, Literal), "only a text literal is untyped"
        return read(str(operand.value.value), kind, operand.span)
    return cast_to(operand.value, kind)


def _check_repeatable(operand: Operand) -> None:
    if extent(operand.value).nodes > MAX_REPEATED_NODES:
        message = "the operand is too large to be evaluated more than once"
        hint = "Compute it in a subquery in FROM, and compare its column."
        raise BindError(message, code="too-large", hint=hint, span=operand.span)


def _cast_hint(kind: Type) -> str | None:
    if kind.element is not None:
        return ARRAY_HINT
    if kind == INTERVAL:
        return "Subtract epoch(a) - epoch(b) to get seconds."
    return "Write epoch(ts) for the seconds since 1970." if kind == TIMESTAMP else None
