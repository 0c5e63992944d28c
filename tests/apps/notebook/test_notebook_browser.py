"""The widgets of notebooks in a real browser: what is on the screen, also after changes, on white and on black."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from browser import installed, watch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(installed() is None, reason="no browser is installed here (Debian: apt install chromium)"),
]

ZERO = 1_704_067_200_000.0  # 2024-01-01 in milliseconds
BACKGROUND = {False: (255, 255, 255), True: (17, 17, 17)}
TABLE = {
    "columns": ["sym", "shares", "note"],
    "numbers": [False, True, False],
    "rows": [],
    "more": 0,
    "status": "begins",
}


def brightness(colour: tuple[int, ...]) -> float:
    parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour[:3]]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(colour: str, dark: bool) -> float:
    """By the definition of the accessibility guidelines, from 1 to 21."""
    rgb = tuple(int(n) for n in re.findall(r"\d+", colour)[:3])
    one, two = sorted((brightness(rgb), brightness(BACKGROUND[dark])))
    return (two + 0.05) / (one + 0.05)


def plateau(name: str, *steps: tuple[float, float, float]) -> dict[str, Any]:
    return {name: [[ZERO + 1000 * start, ZERO + 1000 * end, value] for start, end, value in steps]}


@pytest.mark.parametrize("dark", [False, True])
def test_a_table_shows_what_the_model_has(tmp_path: Path, dark: bool) -> None:
    wild = "<script>window.broken = 1</script><img src=x onerror='window.broken = 1'>"
    rows = [["ACME", 100, None], [wild, "9007199254740993", [1, None, "x"]], ["x" * 5000, -0.5, True]]
    seen = watch(
        tmp_path,
        "table.js",
        [
            TABLE,
            {"rows": rows, "more": 12345, "status": "goes on"},
            {"rows": [["NOVA", 5, ""]], "more": 0},
            {"columns": ["a"], "numbers": [True], "rows": []},
            "leave",
            {"rows": [[1]]},
        ],
        dark,
    )
    empty, full, one, other, left, after = seen
    assert empty["head"] == ["sym", "shares", "note"] and empty["cells"] == [["no rows"]]
    assert full["cells"] == [
        ["ACME", "100", "NULL"],
        [wild, "9007199254740993", "[1, NULL, x]"],
        ["x" * 5000, "-0.5", "true"],
    ]
    assert full["scripts"] == 0, "texts stay texts"
    assert full["status"] == ["… 12,345 more · goes on"] and one["status"] == ["goes on"]
    looks = [full["looks"][at : at + 3] for at in (0, 3, 6)]
    assert all(row[1]["align"] == "right" and row[0]["align"] in ("left", "start") for row in looks)
    assert looks[0][2]["classes"] == "null" and looks[1][1]["classes"] == "number"
    assert max(look["width"] for row in looks for look in row) < 400, "a long text does not push the others away"
    assert max(look["height"] for row in looks for look in row) < 30, "nor does it take a second line"
    assert full["box"][2] <= 860
    assert all(contrast(look["colour"], dark) > 7 for row in looks for look in row)
    assert one["cells"] == [["NOVA", "5", ""]]
    assert other["head"] == ["a"] and other["cells"] == [["no rows"]]
    assert after["cells"] == left["cells"], "a view that is gone draws no more"


@pytest.mark.parametrize("dark", [False, True])
def test_a_chart_draws_steps_and_axes(tmp_path: Path, dark: bool) -> None:
    two = plateau("a", (0, 60, 10), (60, 90, 25), (120, 180, 5)) | plateau("<b>", (0, 180, 20))
    seen = watch(
        tmp_path,
        "chart.js",
        [
            {"lines": {}, "title": "shares", "status": "begins"},
            {"lines": two, "status": "goes on"},
            {"lines": plateau("", (0, 1, -3))},
            {"lines": {f"line {n:02d} of very many": [[ZERO, ZERO + 1000, n]] for n in range(20)}},
            {"lines": plateau("days", (0, 86400 * 9, 0))},
            {"lines": {}},
        ],
        dark,
    )
    empty, full, single, many, days, again = seen
    assert empty["axis"] == again["axis"] == ["nothing to draw yet"] and not again["paths"]
    assert full["names"] == ["<b>", "a"] and full["scripts"] == 0
    assert full["status"] == ["goes on"]
    assert full["axis"] == ["0", "5", "10", "15", "20", "25", "00:00:00", "00:00:30", "00:01:00", "00:01:30",
                            "00:02:00", "00:02:30", "00:03:00"]  # fmt: skip
    level, steps = (path["d"] for path in full["paths"])
    assert re.fullmatch(r"M64\.0 (\S+)H630\.0", level)
    # Up where it changes, broken where nothing was known; the left edge is 0 s, the right one 180 s.
    ups = re.fullmatch(r"M64\.0 (\S+)H252\.7V(\S+)H347\.0M441\.3 (\S+)H630\.0", steps)
    assert ups is not None, steps
    ten, most, five = (float(height) for height in ups.groups())
    assert most == 30.0 and five > ten > most, "25 is the top of the axis"
    assert (five - ten) * 3 == pytest.approx(ten - most, abs=0.4), "heights are in proportion"
    assert single["names"] == [] and single["axis"][:2] == ["-3", "-2.5"] and "0" in single["axis"]
    assert len(many["names"]) == 12 and many["names"][0] == "line 00 of ver…" and "… 8 more" in many["axis"]
    assert len(many["paths"]) == 20
    assert "2024-01-02" in days["axis"] or "2024-01-03" in days["axis"]
    for drawn in (full, single, many, days):
        assert all(contrast(path["stroke"], dark) > 3 for path in drawn["paths"])
        assert all(contrast(colour, dark) > 7 for colour in drawn["texts"])
        left, top, width, height = drawn["box"]
        for one, other, upper, lower in drawn["labels"]:
            assert left <= one and other <= left + width and top <= upper and lower <= top + height, (
                "a label is cut off"
            )


def test_a_chart_takes_many_steps(tmp_path: Path) -> None:
    steps = [[ZERO + n, ZERO + n + 1, n % 100] for n in range(200_000)]
    [seen] = watch(tmp_path, "chart.js", [{"lines": {"n": steps}, "title": "n", "status": ""}])
    assert seen["paths"][0]["d"].count("H") == 200_000
