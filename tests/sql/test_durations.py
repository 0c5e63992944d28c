"""Durations as people write them, everywhere a length of time is read."""

from __future__ import annotations

import pytest

from strandline.core.errors import ParseError
from strandline.core.temporal import DAY, HOUR, MILLISECOND, MINUTE, SECOND, WEEK
from strandline.sql import ast
from strandline.sql.parser.statements import parse_one


def window_of(text: str) -> int:
    query = parse_one(f"SELECT a FROM s WINDOW(RANGE {text})")
    assert isinstance(query, ast.Select) and isinstance(query.tables[0], ast.StreamTable)
    window = query.tables[0].window
    assert isinstance(window, ast.RangeWindow) and window.range is not None
    return window.range.microseconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1h", HOUR),
        ("1 H", HOUR),
        ("10 s", 10 * SECOND),
        ("10s", 10 * SECOND),
        ("10SECONDS", 10 * SECOND),
        ("5m", 5 * MINUTE),
        ("5min", 5 * MINUTE),
        ("5 mins", 5 * MINUTE),
        ("7us", 7),
        ("7µs", 7),
        ("250ms", 250 * MILLISECOND),
        ("0.5s", SECOND // 2),
        ("2d", 2 * DAY),
        ("1w", WEEK),
        ("1h30m", 90 * MINUTE),
        ("INTERVAL '1' HOUR", HOUR),
        ("INTERVAL '1h'", HOUR),
        ("INTERVAL '1h 30m'", 90 * MINUTE),
        ("INTERVAL '00:10:00'", 10 * MINUTE),
        ("INTERVAL '00:10'", 10 * MINUTE),
        ("INTERVAL '100:00:00.25'", 100 * HOUR + SECOND // 4),
        ("INTERVAL '1 day 02:00:00'", 26 * HOUR),
        ("'10 minutes'", 10 * MINUTE),
        ("'10' m", 10 * MINUTE),
    ],
)
def test_lengths_of_windows(text: str, expected: int) -> None:
    assert window_of(text) == expected


def test_a_short_duration_is_a_value() -> None:
    query = parse_one("SELECT a FROM s WHERE ts - 1m30s < ts")
    assert isinstance(query, ast.Select) and isinstance(query.where, ast.Binary)
    assert query.where.left == ast.Binary(
        "-", query.where.right, ast.Interval(90 * SECOND, span=query.span), span=query.span
    )


@pytest.mark.parametrize(
    "text", ["10x", "1h30", "1h30x", "'1:2:3:4'", "'10:99'", "5 ds", "'1 02:00:00'", "'-00:00:01'"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        window_of(text)
    assert caught.value.code in ("bad-number", "bad-duration", "unknown-unit", "syntax")
