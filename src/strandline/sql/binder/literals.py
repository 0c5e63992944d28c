"""Typed literals, and constant casts.

All of this follows from a text and a type; no name has to be resolved.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import Final

from strandline.core.errors import BindError, ParseError, Span
from strandline.core.types import BIGINT, DOUBLE, INT, INTERVAL, MAX_PRECISION, Type, decimal
from strandline.logical import values
from strandline.logical.expressions import Cast, Expression, Literal
from strandline.sql.parser.literals import amounts_of, microseconds_of

_EXAMPLES: Final = {
    "TIMESTAMP": "Write it like '2024-01-31 23:59:59.5'.",
    "DATE": "Write it like '2024-01-31'.",
    "BOOLEAN": "Write TRUE or FALSE.",
    "INTERVAL": "Write it like '10 seconds' or '1 hour 30 minutes'.",
    "ARRAY": "Write array(a, …).",
}


def number(digits: str, span: Span) -> Literal:
    """A number: INT, BIGINT or DECIMAL by its size, DECIMAL with a point, DOUBLE with an exponent."""
    if "e" in digits.lower():
        value = float(digits)
        if not math.isfinite(value):
            hint = "A DOUBLE goes up to about 1.8e308."
            raise BindError("the number is too large", code="number-too-large", hint=hint, span=span)
        return Literal(value, DOUBLE)
    whole, _, fraction = digits.lstrip("-").partition(".")
    precision = max(len(whole.lstrip("0")) + len(fraction), 1)
    if precision > MAX_PRECISION:
        hint = f"A DECIMAL has up to {MAX_PRECISION} digits; write an exponent for a DOUBLE, as in 1e40."
        raise BindError("the number has too many digits", code="number-too-large", hint=hint, span=span)
    exact = Decimal(digits)
    if "." not in digits and -(2**63) <= exact < 2**63:
        return Literal(int(exact), INT if -(2**31) <= exact < 2**31 else BIGINT)
    return Literal(exact, decimal(precision, len(fraction)))


def read(text: str, kind: Type, span: Span) -> Literal:
    """The literal of type `kind` that a text denotes."""
    value = _interval(text) if kind == INTERVAL else values.parse(text, kind)
    # Reading '1.005' as DECIMAL(3,2) would compare with another number than the one that is written.
    if value is None or (isinstance(value, Decimal) and not _denotes(text, value)):
        shown = text if len(text) <= 40 else f"{text[:40]}…"
        hint = _EXAMPLES.get(kind.name, "Write the number without quotes.")
        raise BindError(f"'{shown}' is not {article(kind)}", code="invalid-literal", hint=hint, span=span)
    return Literal(value, kind)


def _denotes(text: str, value: Decimal) -> bool:
    try:
        return Decimal(text.strip()) == value
    except InvalidOperation:  # an exponent beyond all bounds
        return False


def _interval(text: str) -> int | None:
    amounts = amounts_of(text)
    try:
        return None if amounts is None else microseconds_of(amounts, Span(text, 0, len(text)))
    except ParseError:
        return None


def cast_to(value: Expression, kind: Type) -> Expression:
    """The value in another type. A literal is cast here, unless it has no value there: that is decided at run time."""
    if value.type == kind:
        return value
    if isinstance(value, Literal):
        changed = values.cast(value.value, value.type, kind)
        if changed is not None or value.value is None:
            return Literal(changed, kind)
    return Cast(value, kind)


def article(kind: Type) -> str:
    """A type with its article, for messages: a DATE, an INTERVAL."""
    return f"{'an' if str(kind)[0] in 'AEIOU' else 'a'} {kind}"
