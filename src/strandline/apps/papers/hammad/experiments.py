"""Experiments of section 5: distributions of windows, utilisations, bursts, and what memory they take.

Every policy runs over the same tuples. Figures are by seed, so that a mean and its spread can be shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from strandline.apps.papers.hammad.arrivals import ArrivalModel, generate_streams
from strandline.apps.papers.hammad.formulas import DISTRIBUTIONS, LARGEST
from strandline.apps.papers.hammad.simulation import (
    PAPER_MODE,
    BandWork,
    JoinMethod,
    ResponseTimes,
    ScheduledRun,
    measure,
    schedule,
)
from strandline.runtime.scheduling.bands import Bands, Ints
from strandline.runtime.scheduling.policies import POLICIES, rank_tasks
from strandline.runtime.scheduling.release import Floats, ReleaseMode

PAPER_POLICIES: Final = ("LWO", "SWF", "Greedy")
UTILISATIONS: Final = (0.6, 0.8, 0.9)
BURSTS: Final = (1, 2, 3, 4, 5)
RATES: Final = {JoinMethod.HASH: 100.0, JoinMethod.NESTED_LOOPS: 15.0}
POPULAR: Final = 20  # queries of one window, for the policy `rate`


@dataclass(frozen=True, slots=True)
class Setting:
    """One experiment but for the policy; `utilisation` is the share of time in which the server works."""

    method: JoinMethod
    distribution: str
    burst: int
    utilisation: float

    @property
    def model(self) -> ArrivalModel:
        return ArrivalModel(RATES[self.method], self.burst)


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """Response times in seconds, rows by seed and columns by window; the most tuples that waited and results that were
    held, by seed, as shares of the tuples that both streams have in the largest window; the runs that outlast their
    arrivals."""

    average: Floats
    maximum: Floats
    waiting: Floats
    held: Floats
    outlasting: int

    @property
    def mean(self) -> float:
        """The mean of the windows' averages, over all seeds."""
        return float(self.average.mean())


# By setting, policy and mode of release.
SimulatedFigures = dict[tuple[Setting, str, ReleaseMode], PolicyFigures]


def list_settings(utilisations: Iterable[float]) -> list[Setting]:
    """Figures 7 to 9: all distributions, tuple by tuple; figure 10: bursts in Small-Large, hashed."""
    levels = sorted(utilisations)
    calm = [
        Setting(method, distribution, 1, level)
        for method in JoinMethod
        for distribution in DISTRIBUTIONS
        for level in levels
    ]
    bursty = [Setting(JoinMethod.HASH, "Small-Large", burst, level) for burst in BURSTS[1:] for level in levels]
    return calm + bursty


def simulate(
    settings: Iterable[Setting], tuples: int, seeds: int, progress: Callable[[str], None] = lambda phase: None
) -> SimulatedFigures:
    """Run all settings with the paper's policies, both modes of release each, and the seeds 1, 2, …"""
    by_arrivals: dict[tuple[JoinMethod, int], list[Setting]] = {}
    for setting in settings:
        by_arrivals.setdefault((setting.method, setting.burst), []).append(setting)
    runs: dict[tuple[Setting, str, ReleaseMode], list[PolicyFigures]] = {}
    for (method, burst), group in by_arrivals.items():
        for seed in range(1, seeds + 1):
            progress(f"simulating: {method}, bursts of {burst}, seed {seed}")
            arrived = generate_streams(group[0].model, tuples, seed)
            for distribution in dict.fromkeys(setting.distribution for setting in group):
                work = BandWork.of(arrived, DISTRIBUTIONS[distribution], method)
                for setting in group:
                    if setting.distribution == distribution:
                        for policy in PAPER_POLICIES:
                            for mode, figures in run_policy(work, policy, setting).items():
                                runs.setdefault((setting, policy, mode), []).append(figures)
    return {key: _stack(figures) for key, figures in runs.items()}


def run_policy(work: BandWork, policy: str, setting: Setting) -> dict[ReleaseMode, PolicyFigures]:
    unit = work.unit_seconds(setting.utilisation)
    run = schedule(work, _cached_ranks(policy, tuple(work.bands.windows.tolist()), len(work.tuples)), unit)
    # LWO has no second tuple under way: what is scanned may go.
    modes = (PAPER_MODE[policy],) if policy == "LWO" else tuple(ReleaseMode)
    return {mode: _figures(setting, run, mode, measure(work, run, unit, mode)) for mode in modes}


@lru_cache(maxsize=2 * len(PAPER_POLICIES) * len(DISTRIBUTIONS))
def _cached_ranks(policy: str, windows: tuple[int, ...], tuples: int) -> Ints:
    return rank_tasks(POLICIES[policy], Bands.of(windows), tuples)


def _figures(setting: Setting, run: ScheduledRun, mode: ReleaseMode, times: ResponseTimes) -> PolicyFigures:
    stored = 2 * setting.model.rate * LARGEST
    waiting, held = np.array([run.waiting / stored]), np.array([run.held[mode] / stored])
    return PolicyFigures(times.average[None, :], times.maximum[None, :], waiting, held, int(run.outlasts))


def _stack(figures: list[PolicyFigures]) -> PolicyFigures:
    return PolicyFigures(
        np.concatenate([each.average for each in figures]),
        np.concatenate([each.maximum for each in figures]),
        np.concatenate([each.waiting for each in figures]),
        np.concatenate([each.held for each in figures]),
        sum(each.outlasting for each in figures),
    )


def of_paper(figures: SimulatedFigures, setting: Setting) -> dict[str, PolicyFigures]:
    """The figures of each policy with the release of the paper."""
    return {policy: figures[setting, policy, PAPER_MODE[policy]] for policy in PAPER_POLICIES}


def improvement(figures: Mapping[str, PolicyFigures]) -> Floats:
    """By seed, the share by which Greedy's mean is below that of LWO."""
    gained: Floats = 1 - figures["Greedy"].average.mean(axis=1) / figures["LWO"].average.mean(axis=1)
    return gained


def bound_of_improvement(figures: Mapping[str, PolicyFigures]) -> Floats:
    """By seed, the same if the three small windows of Small-Large took no time at all, and the others as in LWO."""
    lwo = figures["LWO"].average
    bound: Floats = lwo[:, :3].sum(axis=1) / lwo.sum(axis=1)
    return bound


def ratio_of_maxima(figures: Mapping[str, PolicyFigures]) -> Floats:
    """By seed, the longest response of the largest window with SWF, as a multiple of that with Greedy."""
    ratio: Floats = figures["SWF"].maximum[:, -1] / figures["Greedy"].maximum[:, -1]
    return ratio


def compare_rate(tuples: int, utilisation: float, seed: int = 1) -> dict[str, list[float]]:
    """Mean response over queries with `rate`, as a multiple of Greedy's, where one window after the other has many
    queries."""
    arrived = generate_streams(ArrivalModel(RATES[JoinMethod.HASH]), tuples, seed)
    ratios: dict[str, list[float]] = {}
    for name, windows in DISTRIBUTIONS.items():
        work = BandWork.of(arrived, windows, JoinMethod.HASH)
        unit, ratios[name] = work.unit_seconds(utilisation), []
        for popular in range(len(windows)):
            queries = np.where(np.arange(len(windows)) == popular, POPULAR, 1)
            bands = replace(work.bands, queries=queries)
            means = {}
            for policy in ("Greedy", "rate"):
                run = schedule(work, rank_tasks(POLICIES[policy], bands, len(arrived)), unit)
                times = measure(work, run, unit, PAPER_MODE[policy])
                means[policy] = float(np.average(times.average, weights=queries))
            ratios[name].append(means["rate"] / means["Greedy"])
    return ratios
