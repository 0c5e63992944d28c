"""Numbers, percentages and lengths of time as they are written."""

from __future__ import annotations

import difflib
import math
import re
from fractions import Fraction
from typing import Final

from strandline.core.errors import ParseError, Span
from strandline.core.temporal import UNITS, unit_size
from strandline.core.types import MAX_PRECISION
from strandline.sql import ast
from strandline.sql.lexer import Kind
from strandline.sql.parser.token_stream import TokenStream

# Durations stay far within int64, so that adding one to any instant of a row cannot overflow.
MAX_DURATION_US: Final = 2**61
MAX_ROWS: Final = 10**9

_AMOUNT: Final = re.compile(r"\s*([+-]?[0-9]+(?:\.[0-9]*)?|[+-]?\.[0-9]+)\s*([A-Za-zµ]*)\s*(?:,\s*(?=.))?")
# The end of a text such as '1 day 02:30:00.5': hours, minutes and seconds, with one sign for all of them.
_CLOCK: Final = re.compile(r"(?:^|\s)\s*([+-]?)([0-9]+):([0-5]?[0-9])(?::([0-5]?[0-9](?:\.[0-9]*)?))?\s*$")


def parse_whole_number(tokens: TokenStream, description: str, minimum: int, maximum: int) -> int:
    token = tokens.expect_number(description)
    if not token.value.isdecimal() or len(token.value) > 18 or not minimum <= int(token.value) <= maximum:
        raise tokens.error(
            f"{description} must be a whole number from {minimum} to {maximum}", "out-of-range", token.span
        )
    return int(token.value)


def parse_row_count(tokens: TokenStream, description: str) -> int:
    return parse_whole_number(tokens, description, 1, MAX_ROWS)


def parse_percent(tokens: TokenStream, description: str) -> float:
    """`n PERCENT`, as a share."""
    number = tokens.expect_number(f"a number: {description}")
    tokens.expect("PERCENT")
    if not 0 < float(number.value) <= 100:
        raise tokens.error("a percentage is more than 0 and at most 100", "out-of-range", number.span)
    return float(number.value) / 100


def convert_number(digits: str, span: Span) -> int | float | str:
    """A number of a source argument: whole numbers and exponents as numbers, decimals as their text."""
    if "e" in digits.lower():
        value = float(digits)
        if math.isfinite(value):
            return value
    elif "." in digits:
        return digits
    elif len(digits) <= MAX_PRECISION:
        return int(digits)
    raise ParseError("the number is too large", code="number-too-large", hint="Quote it as a text.", span=span)


# ---- lengths of time -------------------------------------------------------------------------------------------------


def parse_duration(tokens: TokenStream, clause: str, least: int) -> ast.Duration:
    """The length of time after `clause`, at least `least` microseconds."""
    start = tokens.token
    microseconds = parse_interval(tokens)
    span = tokens.since(start)
    if microseconds < least:
        bound = "be longer than zero" if least else "not be negative"
        raise tokens.error(f"{clause} must {bound}", "bad-duration", span)
    return ast.Duration(microseconds, span=span)


def begins_interval(tokens: TokenStream) -> bool:
    """Whether the word INTERVAL here begins a literal: `interval - 5` may also be a column minus a number."""
    if tokens.peek().keyword in ("-", "+"):
        return tokens.peek(2).kind is Kind.NUMBER and unit_size(tokens.peek(3).value) is not None
    return tokens.peek().kind in (Kind.TEXT, Kind.NUMBER, Kind.DURATION)


def begins_months(tokens: TokenStream) -> bool:
    """Whether `INTERVAL '1' MONTH`, `INTERVAL 2 YEARS` or `INTERVAL '1 month'` begins here: months have no length."""
    if not tokens.sees("INTERVAL"):
        return False
    amount, unit = tokens.peek(), tokens.peek(2)
    if amount.kind is Kind.NUMBER or (amount.kind is Kind.TEXT and amount.value.strip().isdecimal()):
        return amount.value.strip().isdecimal() and _months_in(unit.value) > 0
    amounts = amounts_of(amount.value) if amount.kind is Kind.TEXT else None
    return amounts is not None and all(n.isdecimal() and _months_in(unit) > 0 for n, unit in amounts)


def parse_months(tokens: TokenStream) -> int:
    """The number of months of such an interval."""
    tokens.expect("INTERVAL")
    token = tokens.advance()
    if token.value.strip().isdecimal():
        return int(token.value) * _months_in(tokens.advance().value)
    return sum(int(number) * _months_in(unit) for number, unit in amounts_of(token.value) or ())


def _months_in(word: str) -> int:
    return {"MONTH": 1, "MON": 1, "QUARTER": 3, "YEAR": 12}.get(word.upper().removesuffix("S"), 0)


def parse_interval(tokens: TokenStream) -> int:
    """`[INTERVAL] 10 SECONDS`, `10s`, `'10' SECOND`, `'10 seconds'`, `'1 hour 30 minutes'` or `'01:30:00'`, in
    microseconds."""
    explicit = tokens.accept("INTERVAL")
    start = tokens.token
    if start.kind is Kind.DURATION:
        return parse_short_duration(tokens)
    if start.kind is Kind.TEXT:
        return _parse_interval_text(tokens)
    sign = tokens.advance().value if tokens.sees_any(("-", "+")) else ""
    expected = "a number or a text after INTERVAL" if explicit else "a duration"
    number = tokens.expect_number(expected, "Write a number and a unit, as in 10 SECONDS.").value
    return microseconds_of([(sign + number, _parse_unit(tokens))], tokens.since(start))


def parse_short_duration(tokens: TokenStream) -> int:
    """A length of time that is one word, such as `10s` or `1h30m`, in microseconds."""
    token = tokens.advance()
    amounts = amounts_of(token.value)
    assert amounts is not None, "the lexer knows a duration by its units"
    return microseconds_of(amounts, token.span)


def _parse_interval_text(tokens: TokenStream) -> int:
    token = tokens.advance()
    match amounts_of(token.value):
        case None:
            hint = "Write '10 seconds', '1 hour 30 minutes' or '01:30:00'."
            raise tokens.error(f"invalid duration {token}", "bad-duration", token.span, hint)
        case [(number, "")]:
            return microseconds_of([(number, _parse_unit(tokens))], tokens.since(token))
        case amounts:
            return microseconds_of(amounts, token.span)


def _parse_unit(tokens: TokenStream) -> str:
    if tokens.token.kind is not Kind.WORD:
        hint = "Units are MICROSECONDS, MILLISECONDS, SECONDS, MINUTES, HOURS, DAYS, WEEKS."
        raise tokens.unexpected("a unit of time", hint)
    if unit_size(tokens.token.value) is None:
        hint = _hint_for_unit(tokens.token.value)
        raise tokens.error(f"unknown unit of time {tokens.token}", "unknown-unit", hint=hint)
    return tokens.advance().value


def _hint_for_unit(word: str) -> str:
    upper = word.upper().removesuffix("S")
    if upper in ("MONTH", "QUARTER", "YEAR", "DECADE", "CENTURY"):
        return "Months and years vary in length; use DAYS."
    near = difflib.get_close_matches(upper, UNITS, n=1)
    return f"Did you mean {near[0]}S?" if near else f"Units are {', '.join(f'{unit}S' for unit in UNITS)}."


def amounts_of(text: str) -> list[tuple[str, str]] | None:
    """The (number, unit) pairs of an interval text such as '1 hour 30 minutes' or '1 day 02:30:00'; None if it is not
    one."""
    if (clock := _CLOCK.search(text)) is not None:
        sign, *parts = clock.groups(default="0")
        sign = "" if sign == "0" else sign
        before = amounts_of(text[: clock.start()]) if text[: clock.start()].strip() else []
        if before is None or any(not unit for _, unit in before):
            return None
        units = zip(parts, ("hour", "minute", "second"), strict=True)
        return [*before, *((sign + number, unit) for number, unit in units)]
    amounts: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _AMOUNT.match(text, at)
        if match is None:
            return None
        amounts.append((match.group(1), match.group(2)))
        at = match.end()
    bare = [unit for _, unit in amounts if not unit]
    return amounts if amounts and (not bare or len(amounts) == 1) else None


def microseconds_of(amounts: list[tuple[str, str]], span: Span) -> int:
    """The sum of (number, unit) pairs, which must be a whole number of microseconds."""

    def bad_duration(message: str, hint: str) -> ParseError:
        return ParseError(message, code="bad-duration", hint=hint, span=span)

    total = Fraction(0)
    for number, unit in amounts:
        size = unit_size(unit)
        if size is None:
            hint = _hint_for_unit(unit)
            raise ParseError(f"unknown unit of time {unit}", code="unknown-unit", hint=hint, span=span)
        if len(number) > 2 * MAX_PRECISION or "e" in number.lower():
            hint = "Write it without an exponent, in a larger or smaller unit."
            raise bad_duration("the duration must be a plain number", hint)
        total += Fraction(number) * size
    if total.denominator != 1:
        hint = "Time has a resolution of one microsecond."
        raise bad_duration("the duration must be a whole number of microseconds", hint)
    if abs(total) > MAX_DURATION_US:
        raise bad_duration("duration out of range", "Use at most 70,000 years.")
    return int(total)
