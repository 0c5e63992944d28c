"""What the paper says of its figures 7 to 10 and of memory, beside what the simulation gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from strandline.apps.papers.hammad import experiments
from strandline.apps.papers.hammad.experiments import PolicyFigures, Setting, SimulatedFigures, of_paper
from strandline.apps.papers.hammad.formulas import DISTRIBUTIONS, smallest_window_first
from strandline.apps.papers.hammad.simulation import JoinMethod
from strandline.apps.papers.output import PrintedStatement
from strandline.runtime.scheduling.release import Floats, ReleaseMode

NEAR = 0.1  # what is called equal differs by at most so much

ByPolicy = Mapping[str, PolicyFigures]


def of_figures(figures: SimulatedFigures, utilisation: float) -> list[PrintedStatement]:
    """All statements, at one utilisation; the paper does not state its own."""
    hashed = {name: of_paper(figures, Setting(JoinMethod.HASH, name, 1, utilisation)) for name in DISTRIBUTIONS}
    looped = {name: of_paper(figures, Setting(JoinMethod.NESTED_LOOPS, name, 1, utilisation)) for name in DISTRIBUTIONS}
    bursts = {
        burst: of_paper(figures, Setting(JoinMethod.HASH, "Small-Large", burst, utilisation))
        for burst in experiments.BURSTS
    }
    scanned = figures[Setting(JoinMethod.HASH, "Small-Large", 1, utilisation), "SWF", ReleaseMode.AS_SCANNED]
    return [
        *_of_means(hashed),
        *_of_windows(hashed, scanned),
        _of_nested_loops(hashed, looped),
        *_of_bursts(bursts),
        *_of_buffers({**hashed, "bursts of 5": bursts[5]}),
    ]


def _show_range(values: Floats) -> str:
    return f"{values.min():.2f} to {values.max():.2f}"


def averages(figures: PolicyFigures) -> Floats:
    """By window, over all seeds."""
    mean: Floats = figures.average.mean(axis=0)
    return mean


def rank_means(by_policy: ByPolicy) -> list[str]:
    """Policies from the least mean response to the greatest."""
    return sorted(by_policy, key=lambda policy: by_policy[policy].mean)


def _of_means(hashed: Mapping[str, ByPolicy]) -> list[PrintedStatement]:
    orders = {name: rank_means(found) for name, found in hashed.items()}
    second = {name: order[1] for name, order in orders.items()}
    shown = ", ".join(
        f"{name} {order[0]} {hashed[name][order[0]].mean * 1000:.1f} ms" for name, order in orders.items()
    )
    seconds = ", ".join(f"{name} {policy}" for name, policy in second.items())
    as_printed = all((policy == "LWO") == (name != "Mostly-Small") for name, policy in second.items())
    return [
        PrintedStatement("7", "Greedy best in all four", shown, all(order[0] == "Greedy" for order in orders.values())),
        PrintedStatement("7", "LWO second but for Mostly-Small", seconds, as_printed),
    ]


def _of_windows(hashed: Mapping[str, ByPolicy], scanned: PolicyFigures) -> list[PrintedStatement]:
    by_window = {name: {policy: averages(found[policy]) for policy in found} for name, found in hashed.items()}
    flat = [by_window[name]["LWO"].max() / by_window[name]["LWO"].min() for name in hashed]
    peaks = [
        float((found[p].maximum.mean(axis=0) / averages(found[p])).max()) for found in hashed.values() for p in found
    ]
    uniform, small, large, both = (by_window[name] for name in DISTRIBUTIONS)
    same = uniform["Greedy"] / uniform["SWF"]
    half = small["SWF"][-1] / uniform["SWF"][-1]
    predicted = smallest_window_first(DISTRIBUTIONS["Mostly-Small"])[-1]
    predicted /= smallest_window_first(DISTRIBUTIONS["Uniform"])[-1]
    first = np.flatnonzero(large["LWO"] < large["Greedy"]) + 1
    below = 1 - hashed["Mostly-Large"]["Greedy"].mean / hashed["Mostly-Large"]["LWO"].mean
    like_swf, like_lwo = both["Greedy"][:3] / averages(scanned)[:3], both["Greedy"][3:] / both["LWO"][3:]
    maxima = {
        name: found["Greedy"].maximum[:, -1].mean() / found["SWF"].maximum[:, -1].mean()
        for name, found in hashed.items()
    }
    return [
        PrintedStatement(
            "8", "LWO nearly flat over windows", f"greatest / least {min(flat):.2f} to {max(flat):.2f}", max(flat) < 1.3
        ),
        PrintedStatement(
            "8", "maxima 10 to 100 × the averages in places", f"up to {max(peaks):.0f} ×", 10 <= max(peaks) <= 100
        ),
        PrintedStatement(
            "8 Uniform",
            "Greedy as SWF but for the largest window",
            f"one schedule; by release {same[:-1].min():.2f} to {same[:-1].max():.2f} ×, largest {same[-1]:.2f} ×",
            bool((np.abs(same[:-1] - 1) <= NEAR).all()),
        ),
        PrintedStatement(
            "8 Mostly-Small",
            "largest window of SWF half of Uniform's, by (2)",
            f"{half:.2f}; (2) gives {predicted:.2f}",
            bool(0.4 <= half <= 0.7),
        ),
        PrintedStatement(
            "8 Mostly-Large",
            "LWO below Greedy but for the two smallest",
            f"in windows {', '.join(map(str, first))}",
            first.tolist() == [3, 4, 5, 6, 7],
        ),
        PrintedStatement("8 Mostly-Large", "Greedy slightly better on the mean", f"by {below:.0%}", bool(below > 0)),
        PrintedStatement(
            "8 Small-Large",
            "Greedy like SWF to 15 s, like LWO from 300 s",
            f"{_show_range(like_swf)} × SWF if released alike, {_show_range(like_lwo)} × LWO",
            bool((np.abs(like_swf - 1) <= NEAR).all() and (np.abs(like_lwo - 1) <= NEAR).all()),
        ),
        PrintedStatement(
            "8 maxima",
            "Greedy below SWF in large windows",
            "largest: " + ", ".join(f"{name} {ratio:.2f} ×" for name, ratio in maxima.items()),
            all(ratio < 1 - 1e-9 for ratio in maxima.values()),
        ),
    ]


def _of_nested_loops(hashed: Mapping[str, ByPolicy], looped: Mapping[str, ByPolicy]) -> PrintedStatement:
    same = [name for name in hashed if rank_means(hashed[name]) == rank_means(looped[name])]
    longer = [looped[name][policy].mean / hashed[name][policy].mean for name in hashed for policy in hashed[name]]
    computed = f"same order in {len(same)} of {len(hashed)}, {min(longer):.1f} to {max(longer):.1f} × as long"
    return PrintedStatement(
        "9 nested loops", "the same picture, larger times", computed, len(same) == len(hashed) and min(longer) > 1
    )


def _of_bursts(bursts: Mapping[int, ByPolicy]) -> list[PrintedStatement]:
    gains = {burst: experiments.improvement(found) for burst, found in bursts.items()}
    bounds = {burst: experiments.bound_of_improvement(found) for burst, found in bursts.items()}
    best = max(gains, key=lambda burst: float(gains[burst].mean()))
    ratios, longest = experiments.ratio_of_maxima(bursts[5]), bursts[5]
    seconds = {policy: longest[policy].maximum[:, -1] for policy in ("SWF", "Greedy")}
    return [
        PrintedStatement(
            "10",
            "Greedy best for every size of bursts",
            ", ".join(f"{burst}: {rank_means(found)[0]}" for burst, found in bursts.items()),
            all(rank_means(found)[0] == "Greedy" for found in bursts.values()),
        ),
        PrintedStatement(
            "10",
            "up to 80 % better than LWO (bursts of 4)",
            f"at most {gains[best].mean():.0%} (bursts of {best}), of a bound of {bounds[best].mean():.0%}",
            bool(gains[best].max() >= 0.8),
        ),
        PrintedStatement(
            "10 maxima",
            "125 s with SWF, 25 s with Greedy (bursts of 5)",
            "; ".join(f"{policy} {s.min():.3g} to {s.max():.3g} s by seed" for policy, s in seconds.items()),
            None,
        ),
        PrintedStatement(
            "10 maxima",
            "SWF 5 × Greedy (bursts of 5)",
            f"{ratios.min():.1f} to {ratios.max():.1f} × by seed",
            bool(np.median(ratios) >= 2.5),
        ),
    ]


def _of_buffers(measured: Mapping[str, ByPolicy]) -> list[PrintedStatement]:
    def statement(printed: str, limit: float, shares: Sequence[tuple[str, float]]) -> PrintedStatement:
        worst = max(shares, key=lambda each: each[1])
        within = sum(share < limit for _, share in shares)
        computed = f"{within} of {len(shares)}; most {worst[1]:.0%}, {worst[0]}"
        return PrintedStatement("memory", printed, computed, within == len(shares))

    waiting = [(f"{name}", float(found["SWF"].waiting.max())) for name, found in measured.items()]
    held = [
        (f"{policy} {name}", float(found[policy].held.max()))
        for name, found in measured.items()
        for policy in ("SWF", "Greedy")
    ]
    return [
        statement("input buffer of SWF below 10 % of the join buffer", 0.1, waiting),
        statement("output buffers below 3 %", 0.03, held),
    ]
