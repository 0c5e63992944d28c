"""Values, instants and tables as people read them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import strandline as sl
from strandline.apps.display import Clock, Head, Row, expanded_lines, lay_out, say_hidden, show_value, table_lines
from strandline.core.temporal import FOREVER, OPEN, SECOND, instant


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (20.0, "20.0"),
        (0.1 + 0.2, "0.3"),
        (1234567.25, "1234567.25"),
        (123456789.123456, "123456789.1235"),
        (12345678901.5, "12345678901.5"),
        (1e15, "1000000000000000.0"),
        (1e16, "1e+16"),
        (1e-7, "1e-07"),
        (-0.5, "-0.5"),
        (float("nan"), "NaN"),
        (float("-inf"), "-Infinity"),
        (True, "true"),
        ([1.0, None], "[1.0, NULL]"),
        ("a\nb", "a⏎b"),
        (b"\x01", "\\x01"),
    ],
)
def test_values(value: object, shown: str) -> None:
    assert show_value(value) == shown


def at(text: str) -> int:
    return instant(f"2024-01-{text}")


@pytest.mark.parametrize(
    ("intervals", "shown", "day"),
    [
        ([("02 09:00", "02 09:05")], ["[09:00, 09:05)"], " on 2024-01-02"),
        ([("02 09:00", "02 09:05:01")], ["[09:00:00, 09:05:01)"], " on 2024-01-02"),
        ([("02 09:00", "03 09:05")], ["[2024-01-02 09:00, 2024-01-03 09:05)"], ""),
        ([("02", "03"), ("03", "04")], ["[2024-01-02, 2024-01-03)", "[2024-01-03, 2024-01-04)"], ""),
        ([("02 09:00:00.5", "02 09:05")], ["[09:00:00.5, 09:05:00)"], " on 2024-01-02"),
    ],
)
def test_instants_have_no_more_than_they_need(intervals: list[tuple[str, str]], shown: list[str], day: str) -> None:
    spans = [(at(start), at(end)) for start, end in intervals]
    clock = Clock(spans)
    assert [clock.interval(*span) for span in spans] == shown and clock.day == day


def test_one_instant_and_ends_that_are_not_known() -> None:
    start = at("02 09:00")
    clock = Clock([(start, start + 1), (start, FOREVER), (start, OPEN)])
    assert [clock.interval(start, end) for end in (start + 1, FOREVER, OPEN)] == ["[09:00]", "[09:00, …)", "[09:00, …)"]


def test_a_clock_says_when_earlier_lines_look_otherwise() -> None:
    clock = Clock([(at("02 09:00"), at("02 09:05"))])
    assert not clock.include([(at("02 10:00"), at("02 11:00"))])
    assert clock.include([(at("02 10:00") + SECOND, FOREVER)])
    assert clock.include([(at("03 10:00"), FOREVER)])


def test_columns_that_do_not_fit_are_left_out_from_the_right_but_not_fixed_ones() -> None:
    heads = [Head("a"), Head("long name"), Head("c", is_number=True), Head("valid", fixed=True)]
    rows = [Row(["x", "y", "1", "[1, 2)"]), Row([None, "z", "22", "[1, 2)"])]
    whole = lay_out(heads, rows, None)
    assert [line.plain for line in table_lines(heads, rows, whole)] == [
        "a     long name   c  valid",
        "x     y           1  [1, 2)",
        "NULL  z          22  [1, 2)",
    ]
    for width in range(5, 40):
        layout = lay_out(heads, rows, width)
        assert 0 in layout.columns and 3 in layout.columns
        assert layout.hidden == tuple(head.name for n, head in enumerate(heads) if n not in layout.columns)
        lines = [line.plain for line in table_lines(heads, rows, layout)]
        assert not layout.hidden or width < max(map(len, lines)) + 2 + 9
        assert width < 12 or max(map(len, lines)) <= width
    assert say_hidden(("b",), ".expand") == "1 column hidden: b; .expand shows it"


def test_an_expanded_row_has_a_line_for_each_column() -> None:
    lines = expanded_lines([Head("a"), Head("bb")], [Row(["x" * 100, None])])
    assert [line.plain for line in lines] == ["row 1", f"  a   {'x' * 100}", "  bb  NULL"]


def test_the_bare_command_shows_help_and_codes_tell_errors_apart() -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "strandline", *words], capture_output=True, text=True)

    assert run("--version").stdout == f"strandline {sl.__version__}\n"
    bare = run()
    assert bare.returncode == 0 and "Usage: " in bare.stdout and "warmup" in bare.stdout and not bare.stderr
    assert run("-h").stdout == bare.stdout
    assert run("nothing").returncode == 2
    assert run("run", "missing.sql", "--engine", "local").returncode == 1
