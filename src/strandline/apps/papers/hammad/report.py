"""Report on Hammad et al.: the formulas, the simulation, and the paper's statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console

from strandline.apps.console import print_table, status
from strandline.apps.papers.figure import Figure, FigureLine
from strandline.apps.papers.hammad import experiments, formulas, statements
from strandline.apps.papers.hammad.experiments import PolicyFigures, Setting, SimulatedFigures, of_paper
from strandline.apps.papers.hammad.formulas import DISTRIBUTIONS
from strandline.apps.papers.hammad.simulation import PAPER_MODE, JoinMethod
from strandline.apps.papers.output import PaperOptions, draw, print_statements
from strandline.runtime.scheduling.release import Floats, ReleaseMode

RATE_TUPLES: Final = 20_000  # at most, in the comparison of `rate`: 56 runs


class PrintedTables:
    """Tables on the console, which can be written as Markdown afterwards."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._texts: list[str] = []

    def show(self, title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> None:
        print_table(self._console, title, heads, rows, left)
        rule = ["---" if head in left else "---:" for head in heads]
        lines = [f"| {' | '.join(cells)} |" for cells in (heads, rule, *rows)]
        self._texts.append("\n".join([f"{title}:", "", *lines, ""]))

    def write(self, directory: Path | None) -> None:
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "tables.md").write_text("\n".join(self._texts))


def report(options: PaperOptions, console: Console) -> None:
    tables, level = PrintedTables(console), options.utilisation
    levels = sorted({*experiments.UTILISATIONS, level})
    _print_formulas(tables)
    with status("simulating") as show_phase:
        figures = experiments.simulate(experiments.list_settings(levels), options.tuples, options.seeds, show_phase)
        show_phase("simulating: rate")
        ratios = experiments.compare_rate(min(options.tuples, RATE_TUPLES), level)
    _print_means(tables, figures, levels)
    for number, method in (("8", JoinMethod.HASH), ("9", JoinMethod.NESTED_LOOPS)):
        for name in DISTRIBUTIONS:
            title = f"Figure {number}, {method}, {name}: response by window, ms, utilisation {level:g}"
            print_windows(tables, title, name, _with_both_modes(figures, Setting(method, name, 1, level)))
    _print_bursts(tables, figures, levels)
    title = f"Figure 10, bursts of 5, Small-Large: response by window, ms, utilisation {level:g}"
    bursty = Setting(JoinMethod.HASH, "Small-Large", 5, level)
    print_windows(tables, title, "Small-Large", _with_both_modes(figures, bursty))
    _print_buffers(tables, figures, level)
    title = f"Policy rate: response as a multiple of Greedy's, {experiments.POPULAR} queries on one of the windows"
    rows = [(name, *(f"{ratio:.2f}" for ratio in found)) for name, found in ratios.items()]
    tables.show(title, ("windows", *_window_heads()), rows, ("windows",))
    print_statements(console, "The paper's statements", statements.of_figures(figures, level))
    outlasting = sum(found.outlasting for (_, policy, mode), found in figures.items() if mode is PAPER_MODE[policy])
    if outlasting:
        console.print(
            f"{outlasting} runs outlasted their arrivals: their response times are too small", highlight=False
        )
    tables.write(options.directory)
    draw(_figures(figures, level), options.directory, console)


def print_windows(tables: PrintedTables, title: str, distribution: str, runs: Mapping[str, PolicyFigures]) -> None:
    """Averages and maxima of seven windows, medians over seeds, a line for each run. A run of the same windows on the
    engine is a further entry of `runs`."""
    rows = []
    for name, found in runs.items():
        for label, by_seed in ((name, found.average), (f"{name}, max", found.maximum)):
            by_window = np.median(by_seed, axis=0)
            rows.append((label, *(_milliseconds(s) for s in by_window), _milliseconds(by_window.mean())))
    heads = ("policy", *(f"{window} s" for window in DISTRIBUTIONS[distribution]), "mean")
    tables.show(title, heads, rows, ("policy",))


def _with_both_modes(figures: SimulatedFigures, setting: Setting) -> dict[str, PolicyFigures]:
    """The paper's policies, and between them SWF with the early release of Greedy."""
    scanned = figures[setting, "SWF", ReleaseMode.AS_SCANNED]
    found = of_paper(figures, setting)
    return {"LWO": found["LWO"], "SWF": found["SWF"], "SWF early": scanned, "Greedy": found["Greedy"]}


def _print_formulas(tables: PrintedTables) -> None:
    by_name: dict[str, Floats] = {
        "LWO (1)": formulas.largest_window_only(DISTRIBUTIONS["Uniform"]),
        "alone": formulas.alone(DISTRIBUTIONS["Uniform"]),
        **{f"SWF (2) {name}": formulas.smallest_window_first(windows) for name, windows in DISTRIBUTIONS.items()},
    }
    rows = [(name, *(f"{1000 * s:.6g}" for s in seconds)) for name, seconds in by_name.items()]
    title = "Figures 3 and 5: mean response by formulas (1) and (2), ms; LWO and alone with Uniform windows"
    tables.show(title, ("", *_window_heads()), rows, ("",))


def _print_means(tables: PrintedTables, figures: SimulatedFigures, levels: Sequence[float]) -> None:
    for number, method in (("7", JoinMethod.HASH), ("9", JoinMethod.NESTED_LOOPS)):
        rows = []
        for name in DISTRIBUTIONS:
            for level in levels:
                found = of_paper(figures, Setting(method, name, 1, level))
                best = statements.rank_means(found)[0]
                rows.append((name, f"{level:g}", *(_mean_and_spread(each) for each in found.values()), best))
        heads = ("windows", "utilisation", *experiments.PAPER_POLICIES, "best")
        title = f"Figure {number}, {method}: mean of the windows' average responses, ms, and its spread over seeds"
        tables.show(title, heads, rows, ("windows", "best"))


def _print_bursts(tables: PrintedTables, figures: SimulatedFigures, levels: Sequence[float]) -> None:
    """Medians: the mean of a few seeds is that of the one with the largest burst."""
    means, maxima = [], []
    for burst in experiments.BURSTS:
        for level in levels:
            found = of_paper(figures, Setting(JoinMethod.HASH, "Small-Large", burst, level))
            gain, bound = experiments.improvement(found), experiments.bound_of_improvement(found)
            by_policy = (f"{np.median(each.average.mean(axis=1)):.3g}" for each in found.values())
            means.append((str(burst), f"{level:g}", *by_policy, f"{np.median(gain):.0%}", f"{np.median(bound):.0%}"))
            by_policy = (f"{np.median(each.maximum[:, -1]):.3g}" for each in found.values())
            ratio = np.median(experiments.ratio_of_maxima(found))
            maxima.append((str(burst), f"{level:g}", *by_policy, f"{ratio:.1f}"))
    heads = ("burst", "utilisation", *experiments.PAPER_POLICIES)
    title = "Figure 10, Small-Large: mean response, s, medians over seeds; how far Greedy is below LWO, and could be"
    tables.show(title, (*heads, "below", "bound"), means, ())
    title = "Figure 10, Small-Large: longest response of the largest window, s, medians over seeds"
    tables.show(title, (*heads, "SWF/Greedy"), maxima, ())


def _print_buffers(tables: PrintedTables, figures: SimulatedFigures, level: float) -> None:
    settings = {
        **{name: Setting(JoinMethod.HASH, name, 1, level) for name in DISTRIBUTIONS},
        **{
            f"Small-Large, bursts of {burst}": Setting(JoinMethod.HASH, "Small-Large", burst, level)
            for burst in experiments.BURSTS[1:]
        },
    }
    rows = []
    for name, setting in settings.items():
        found = of_paper(figures, setting)
        shares = [(f"{np.median(each.waiting):.2%}", f"{np.median(each.held):.2%}") for each in found.values()]
        rows.append((name, *(cell for pair in shares for cell in pair)))
    heads = ("windows", *(f"{policy} {kind}" for policy in experiments.PAPER_POLICIES for kind in ("in", "out")))
    about = f"hash, utilisation {level:g}, medians over seeds"
    title = f"Buffers: most tuples waiting (in) and results held (out), as shares of both join buffers; {about}"
    tables.show(title, heads, rows, ("windows",))


def _window_heads() -> list[str]:
    return [f"w{number}" for number in range(1, 8)]


def _milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.3g}" if seconds < 0.9995 else f"{1000 * seconds:,.0f}"


def _mean_and_spread(found: PolicyFigures) -> str:
    by_seed = 1000 * found.average.mean(axis=1)
    return f"{by_seed.mean():.2f} ± {(by_seed.max() - by_seed.min()) / 2:.2f}"


def _figures(figures: SimulatedFigures, level: float) -> dict[str, Figure]:
    """Response times in milliseconds; those over windows on a logarithmic axis."""
    uniform = DISTRIBUTIONS["Uniform"]
    drawn = {
        "figure-3": _over_windows(
            "Figure 3: LWO and each query alone, by formula (1)",
            {
                "LWO": (uniform, formulas.largest_window_only(uniform)),
                "alone": (uniform, formulas.alone(uniform)),
            },
        ),
        "figure-5": _over_windows(
            "Figure 5: SWF, by formula (2)",
            {name: (windows, formulas.smallest_window_first(windows)) for name, windows in DISTRIBUTIONS.items()},
        ),
    }
    for number, method in (("7", JoinMethod.HASH), ("9", JoinMethod.NESTED_LOOPS)):
        found = [of_paper(figures, Setting(method, name, 1, level)) for name in DISTRIBUTIONS]
        lines = [
            FigureLine(policy, [(place, 1000 * each[policy].mean) for place, each in enumerate(found, 1)])
            for policy in experiments.PAPER_POLICIES
        ]
        names = ", ".join(f"{place} {name}" for place, name in enumerate(DISTRIBUTIONS, 1))
        drawn[f"figure-{number}-means"] = Figure(
            f"Figure {number}: mean response, {method}, utilisation {level:g}", names, "ms", lines
        )
    for method, number in ((JoinMethod.HASH, "8"), (JoinMethod.NESTED_LOOPS, "9")):
        for name in DISTRIBUTIONS:
            drawn |= _by_window(f"figure-{number}", Setting(method, name, 1, level), figures)
    drawn |= _by_window("figure-10", Setting(JoinMethod.HASH, "Small-Large", 5, level), figures)
    bursts = {
        burst: of_paper(figures, Setting(JoinMethod.HASH, "Small-Large", burst, level)) for burst in experiments.BURSTS
    }
    lines = [
        FigureLine(p, [(b, 1000 * float(np.median(found[p].average.mean(axis=1)))) for b, found in bursts.items()])
        for p in experiments.PAPER_POLICIES
    ]
    title = f"Figure 10: mean response, Small-Large, utilisation {level:g}"
    drawn["figure-10-means"] = Figure(title, "expected size of a burst", "ms", lines, logarithmic=True)
    return drawn


def _by_window(stem: str, setting: Setting, figures: SimulatedFigures) -> dict[str, Figure]:
    """A figure of averages and one of maxima over the windows."""
    windows, found = DISTRIBUTIONS[setting.distribution], of_paper(figures, setting)
    about = f"{setting.distribution}, {setting.method}, bursts of {setting.burst}"
    averages = {policy: (windows, np.median(each.average, axis=0)) for policy, each in found.items()}
    maxima = {policy: (windows, np.median(each.maximum, axis=0)) for policy, each in found.items()}
    label, name = stem.replace("figure-", "Figure "), setting.distribution.lower()
    return {
        f"{stem}-{name}": _over_windows(f"{label}: average response, {about}", averages),
        f"{stem}-{name}-maximum": _over_windows(f"{label}: maximum response, {about}", maxima),
    }


def _over_windows(title: str, lines: Mapping[str, tuple[Sequence[int], Floats]]) -> Figure:
    drawn = [
        FigureLine(name, [(window, 1000 * float(s)) for window, s in zip(windows, seconds, strict=True)])
        for name, (windows, seconds) in lines.items()
    ]
    return Figure(title, "window, s", "ms", drawn, logarithmic=True)
