"""What the paper says of its trace and of its figures, beside what the counting model gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from strandline.apps.papers.engine_runs import EngineFigures, compare_default
from strandline.apps.papers.figure import Figure, FigureLine
from strandline.apps.papers.golab_ozsu.engine import NAMES
from strandline.apps.papers.golab_ozsu.queries import Facts, Strategies
from strandline.apps.papers.output import PrintedStatement

Counts = Mapping[str, Mapping[int, Strategies]]
EngineRuns = dict[str, dict[tuple[int, int], dict[str, EngineFigures]]]  # by query, window and batch, strategy


def of_trace(facts: Facts) -> list[PrintedStatement]:
    """The trace's facts at the largest window, with their tolerances."""

    def near(about: str, printed: str, value: float, low: float, high: float, text: str) -> PrintedStatement:
        return PrintedStatement(about, f"{printed} ({low:,g} to {high:,g})", text, low <= value <= high)

    pairs = facts.pairs / facts.sources
    premature = 100 * facts.premature
    return [
        near("distinct sources", "about 2,000", facts.sources, 1_800, 2_200, f"{facts.sources:,.0f}"),
        near("pairs per source", "about 10", pairs, 8, 12, f"{pairs:.1f}"),
        near("Q1 ftp: result / input", "about 1", facts.ftp_result, 0.8, 1.2, f"{facts.ftp_result:.2f}"),
        near("Q1: telnet / ftp results", "about 10", facts.telnet_result, 8, 12, f"{facts.telnet_result:.1f}"),
        near("Q3: results that end early, %", "about 40", premature, 35, 45, f"{premature:.0f}"),
    ]


def of_figures(counts: Counts) -> list[PrintedStatement]:
    """The text on figures 9 to 17, at the largest window where no other is named."""
    windows = sorted(counts["Q1 ftp"])
    last = windows[-1]

    def cost(query: str, strategy: str, window: int = last) -> float:
        return counts[query][window][strategy].per_1000

    def ratio(query: str, slow: str, fast: str, window: int = last) -> float:
        return cost(query, slow, window) / cost(query, fast, window)

    def space(query: str, strategy: str) -> float:
        measured = counts[query][last]
        return measured[strategy].stored / measured["UPA(10)"].stored

    def times(query: str, fast: str, *slow: str) -> str:
        return ", ".join(f"{name} {ratio(query, name, fast):.1f} ×" for name in slow)

    def best(window: int) -> str:
        return min(counts["Q5"][window], key=lambda name: cost("Q5", name, window))

    crossings = [w for w in windows if cost("Q3", "UPA(10)", w) < cost("Q3", "NT", w)]
    telnet = [w for w in windows if cost("Q1 telnet", "UPA(10)", w) > cost("Q1 telnet", "NT", w)]
    slowest = max(counts["Q1 telnet"][last], key=lambda name: cost("Q1 telnet", name))
    degrades = [ratio("Q1 ftp", "DIRECT", "UPA(10)", w) for w in (windows[0], last)]
    both = ("NT", "DIRECT")
    return [
        PrintedStatement(
            "9: Q1 ftp",
            "UPA nearly 2 × as fast as both",
            times("Q1 ftp", "UPA(10)", *both),
            min(ratio("Q1 ftp", name, "UPA(10)") for name in both) >= 1.7,
        ),
        PrintedStatement(
            "9: Q1 ftp",
            "DIRECT faster than NT",
            f"NT {ratio('Q1 ftp', 'NT', 'DIRECT'):.2f} × DIRECT",
            cost("Q1 ftp", "DIRECT") < cost("Q1 ftp", "NT"),
        ),
        PrintedStatement(
            "9: Q1 ftp",
            "DIRECT degrades with the window",
            f"DIRECT / UPA {degrades[0]:.2f} at {windows[0]:,}, {degrades[1]:.2f} at {last:,}",
            degrades[1] > 1.2 * degrades[0],
        ),
        PrintedStatement(
            "10: Q1 telnet",
            "DIRECT by far slowest",
            f"slowest: {slowest}; DIRECT {ratio('Q1 telnet', 'DIRECT', 'NT'):.2f} × NT",
            ratio("Q1 telnet", "DIRECT", "NT") >= 2,
        ),
        PrintedStatement(
            "10: Q1 telnet",
            "UPA(50) up to 10 × as fast as NT",
            times("Q1 telnet", "UPA(50)", "NT"),
            ratio("Q1 telnet", "NT", "UPA(50)") >= 5,
        ),
        PrintedStatement(
            "10: Q1 telnet",
            "UPA(10) good first, then very slow",
            f"slower than NT at {', '.join(f'{w:,}' for w in telnet) or 'no window'}; "
            f"{ratio('Q1 telnet', 'UPA(10)', 'UPA(50)'):.1f} × UPA(50)",
            bool(telnet),
        ),
        PrintedStatement(
            "11: Q2 sources",
            "UPA 10 × as fast as both",
            times("Q2 sources", "UPA(10)", *both),
            min(ratio("Q2 sources", name, "UPA(10)") for name in both) >= 8,
        ),
        PrintedStatement(
            "12: Q2 pairs",
            "UPA about 2 × as fast as NT",
            times("Q2 pairs", "UPA(10)", "NT"),
            ratio("Q2 pairs", "NT", "UPA(10)") >= 1.5,
        ),
        PrintedStatement(
            "12: Q2 pairs",
            "DIRECT poor",
            times("Q2 pairs", "UPA(10)", "DIRECT"),
            cost("Q2 pairs", "DIRECT") > cost("Q2 pairs", "NT"),
        ),
        PrintedStatement(
            "13: Q2 sources, space",
            "up to 100 × less than both",
            ", ".join(f"{name} {space('Q2 sources', name):.0f} ×" for name in both),
            min(space("Q2 sources", name) for name in both) >= 50,
        ),
        PrintedStatement(
            "14: Q2 pairs, space",
            "significantly less",
            ", ".join(f"{name} {space('Q2 pairs', name):.0f} ×" for name in both),
            min(space("Q2 pairs", name) for name in both) >= 2,
        ),
        PrintedStatement(
            "15: Q3",
            "UPA better up to about 10,000, then worse",
            f"better at {', '.join(f'{w:,}' for w in crossings) or 'no window'}; "
            f"UPA {ratio('Q3', 'UPA(10)', 'NT', windows[0]):.1f} × NT at {windows[0]:,}, "
            f"{ratio('Q3', 'UPA(10)', 'NT'):.1f} × at {last:,}",
            bool(crossings) and last not in crossings,
        ),
        PrintedStatement(
            "16: Q4",
            "UPA fastest, DIRECT slowest",
            times("Q4", "UPA(10)", *both),
            cost("Q4", "UPA(10)") < cost("Q4", "NT") < cost("Q4", "DIRECT"),
        ),
        PrintedStatement(
            "16: Q4, space",
            "up to 100 × less than both",
            ", ".join(f"{name} {space('Q4', name):.0f} ×" for name in both),
            min(space("Q4", name) for name in both) >= 50,
        ),
        PrintedStatement(
            "17: Q5",
            "NT(join up) faster than NT",
            f"NT / NT(join up) {ratio('Q5', 'NT', 'NT(join up)', windows[0]):.2f} at {windows[0]:,}, "
            f"{ratio('Q5', 'NT', 'NT(join up)'):.2f} at {last:,}",
            all(cost("Q5", "NT(join up)", w) < cost("Q5", "NT", w) for w in windows),
        ),
        PrintedStatement(
            "17: Q5",
            "UPA best for large windows, NT(join up) for small ones",
            f"best: {best(windows[0])} at {windows[0]:,}, {best(last)} at {last:,}",
            best(last).startswith("UPA") and best(windows[0]) == "NT(join up)",
        ),
    ]


FIGURE_NUMBERS = {"Q1 ftp": 9, "Q1 telnet": 10, "Q2 sources": 11, "Q2 pairs": 12, "Q3": 15, "Q4": 16, "Q5": 17}


def figures_of(counts: Counts, label: str) -> dict[str, Figure]:
    """Touches of every query over the window, and what Q2 stores."""
    drawn = {}
    for query, number in FIGURE_NUMBERS.items():
        drawn[f"figure-{number}-{label}"] = _over_windows(
            f"Figure {number}: {query}", "touches per 1,000 tuples", counts[query], "per_1000"
        )
    for query, number in (("Q2 sources", 13), ("Q2 pairs", 14)):
        drawn[f"figure-{number}-{label}"] = _over_windows(
            f"Figure {number}: {query}, space", "tuples stored", counts[query], "stored"
        )
    return drawn


def _over_windows(title: str, up: str, measured: Mapping[int, Strategies], figure: str) -> Figure:
    windows: Sequence[int] = sorted(measured)
    names = list(measured[windows[0]])
    lines = [FigureLine(name, [(w, getattr(measured[w][name], figure)) for w in windows]) for name in names]
    return Figure(title, "window, units of time", up, lines, logarithmic=True)


def of_engine(measured: EngineRuns) -> list[PrintedStatement]:
    """The same statements of the engine: it has one structure for every state, found by arrays, and only δ*."""
    settings = list(measured["Q1 ftp"])
    batch = settings[0][1]
    last = max(setting for setting in settings if setting[1] == batch)

    def ratio(query: str, slow: str, fast: str = "default", setting: tuple[int, int] = last) -> float | None:
        found = measured[query][setting]
        return found[slow].seconds / found[fast].seconds if slow in found else None

    def compare(about: str, query: str, printed: str, slow: str, least: float) -> PrintedStatement:
        value = ratio(query, slow)
        computed = "not run" if value is None else f"{NAMES[slow]} {value:.1f} × UPA"
        return PrintedStatement(about, printed, computed, None if value is None else value >= least)

    q3 = compare("15: Q3", "Q3", "NT faster than UPA for large windows", "changes", 1)
    saved = last[0] / measured["Q2 sources"][last]["default"].state
    up, down = ratio("Q5, negation up", "changes"), measured["Q5, join up"][last]
    order = down["default"].seconds / measured["Q5, negation up"][last]["default"].seconds
    return [
        compare("9: Q1 ftp", "Q1 ftp", "NT nearly 2 × UPA", "changes", 1.7),
        compare("9: Q1 ftp", "Q1 ftp", "DIRECT nearly 2 × UPA", "intervals", 1.7),
        compare("10: Q1 telnet", "Q1 telnet", "NT up to 10 × UPA", "changes", 5),
        compare("11: Q2 sources", "Q2 sources", "NT 10 × UPA", "changes", 8),
        compare("12: Q2 pairs", "Q2 pairs", "NT about 2 × UPA", "changes", 1.5),
        PrintedStatement("13: Q2 sources, space", "up to 100 × less than the input", f"{saved:.0f} ×", saved >= 50),
        replace(q3, follows=None if q3.follows is None else not q3.follows),
        compare("16: Q4", "Q4", "UPA faster than NT", "changes", 1),
        compare("17: Q5", "Q5, negation up", "UPA faster than NT", "changes", 1),
        PrintedStatement(
            "17: Q5",
            "join up better for small windows only",
            f"join up {order:.2f} × negation up",
            order > 1 and up is not None,
        ),
        compare_default({query: found[last] for query, found in measured.items()}),
    ]


def engine_figures(measured: EngineRuns) -> dict[str, Figure]:
    drawn = {}
    for query, found in measured.items():
        batch = next(iter(found))[1]
        windows = [window for window, length in found if length == batch]
        lines = [
            FigureLine(NAMES[name], [(w, found[w, batch][name].ms_per_1000) for w in windows])
            for name in found[windows[0], batch]
        ]
        stem = query.lower().replace(",", "").replace(" ", "-")
        drawn[f"engine-{stem}"] = Figure(
            f"{query} on the engine", "window, units of time", "ms per 1,000 tuples", lines
        )
    return drawn
