"""Update patterns of edges, held against the elements that operators really send."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import get_args

import polars as pl
import pytest

from random_streams import cut
from rule_queries import shaped_question
from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.core.types import INT, VARCHAR
from strandline.logical.plan import Plan
from strandline.logical.reference.interpreter import bag
from strandline.planner.physical import plan as physical
from strandline.planner.physical.edges import describe_edges
from strandline.planner.physical.lowering import lower
from strandline.planner.physical.operators import show_state
from strandline.planner.physical.plan import Fragment, Pipeline, ResultOf, numbered
from strandline.planner.physical.update_pattern import UpdatePattern
from strandline.planner.stages import optimize
from strandline.runtime.stage import FragmentRunner, StageOutput, operator_for
from strandline.runtime.state.cancelling_log import CancellingLog
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import FoldedLog, HashedLog, HeldRows, SortedLog, SummedLog
from strategies import Question, question
from support import Arrivals, Cuts, arrange, bind, elements_of, examples, form_strategy, run_plan

MONOTONIC, WEAKEST, WEAK, STRICT = UpdatePattern

WORDS = {
    SummedLog: "panes",
    SortedLog: "queue",
    FoldedLog: "keyed",
    HashedLog: "hash",
    CancellingLog: "signed",
    KeyedLog: "keyed",
    HeldRows: "held",
}


def word_of(log: object) -> str:
    return "calendar" if getattr(log, "structure", "") == "calendar" else WORDS[type(log)]


@dataclass
class Edge:
    """What an operator has sent: whole elements, those without an end yet, and how many of them were sent twice."""

    whole: Counter[tuple[str, Instant, Instant]] = field(default_factory=Counter)
    open: Counter[tuple[str, Instant]] = field(default_factory=Counter)
    replaced: int = 0

    def add(self, frame: pl.DataFrame) -> None:
        for payload, start, end in elements_of(frame):
            key = repr(bag([payload])), start  # which of two zeros stands for a group is undefined
            if end == OPEN:
                self.open[key] += 1
            else:
                if self.open[key]:
                    self.open[key] -= 1
                    self.replaced += 1
                self.whole[(*key, end)] += 1


@dataclass
class Run:
    """The edges of a run by the operator that sends, and by operator the structures that held rows."""

    edges: dict[str, Edge] = field(default_factory=lambda: defaultdict(Edge))
    kept: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


@contextmanager
def watched() -> Iterator[Run]:
    """Records what every operator of every shard sends while queries run."""
    run = Run()
    plain = StageOutput.runner, StageOutput.count

    def runner(output: StageOutput, fragment: Fragment, waiting: object = None) -> FragmentRunner:
        def watch(number: int, frame: pl.DataFrame) -> None:
            run.edges[f"{fragment.id}.{number}"].add(frame)

        return FragmentRunner(fragment.root, streams=[fragment.streams], watch=watch)

    def count(output: StageOutput, fragments: list[Fragment], runner: FragmentRunner, states: object = ()) -> None:
        (fragment,) = fragments
        for number, operator in enumerate(runner.operators):
            run.kept[f"{fragment.id}.{number}"] |= {word_of(log) for log in operator.logs.values() if log.segments}
        plain[1](output, fragments, runner, states)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StageOutput, "runner", runner)
        patch.setattr(StageOutput, "count", count)
        yield run


def run_twice(plan: Plan, streams: tuple[Arrivals, ...], dice: Random) -> tuple[Pipeline, Run, Run]:
    """A plan run over the same rows cut into batches in two ways."""
    cuts = [cut(dice, streams) for _ in range(2)]
    cuts[1] = replace(cuts[1], shards=cuts[0].shards, form=cuts[0].form, forms=cuts[0].forms)
    runs: list[Run] = []
    for each in cuts:
        with watched() as run:
            run_plan(plan, streams, each, optimised=False)
        runs.append(run)
    strategy = form_strategy(cuts[0].forms)
    pipeline = lower("q", plan, [s.declared for s in streams], cuts[0].shards, form=cuts[0].form, strategy=strategy)
    return pipeline, runs[0], runs[1]


# ---- the laws --------------------------------------------------------------------------------------------------------


def nothing_is_taken_back(edge: Edge) -> bool:
    """Every element is valid for one instant, or none of them ends."""
    return all(end == start + 1 for _, start, end in edge.whole) or all(end == FOREVER for *_, end in edge.whole)


def first_in_first_out(edge: Edge) -> bool:
    """No element that starts before another ends after it."""
    ends: dict[Instant, list[Instant]] = {}
    for _, start, end in edge.whole:
        ends.setdefault(start, []).append(end)
    return all(max(ends[one]) <= min(ends[two]) for one, two in pairwise(sorted(ends)))


def comes_once(edge: Edge) -> bool:
    """No element is sent without its end."""
    return not edge.replaced and not +edge.open


def ends_are_known(edge: Edge, other: Edge) -> bool:
    """The elements, and so their ends, do not depend on when they are sent."""
    return edge.whole == other.whole


def check(pipeline: Pipeline, one: Run, two: Run) -> Iterator[tuple[str, UpdatePattern]]:
    """The pattern of every edge holds; gives the edges that show that no stronger one does, with their patterns."""
    prefiltered = any(isinstance(n, physical.TopKPrefilter) for f in pipeline.fragments for n in numbered(f.root))
    for name, described in describe_edges(pipeline).items():
        if name not in one.edges and name not in two.edges:
            continue
        edge, other = one.edges[name], two.edges[name]
        assert not +edge.open, f"{name}: what was sent without an end has one at the end of time"
        assert described.form == "changes" or comes_once(edge), name
        match described.pattern:
            case UpdatePattern.MONOTONIC:
                assert nothing_is_taken_back(edge), name
            case UpdatePattern.WEAKEST:
                assert first_in_first_out(edge), name
                if not nothing_is_taken_back(edge):
                    yield name, WEAKEST
            case UpdatePattern.WEAK:
                if not first_in_first_out(edge):
                    yield name, WEAK
            case UpdatePattern.STRICT:
                if not (ends_are_known(edge, other) and comes_once(edge)):
                    yield name, STRICT
        # A top-k filter before the window drops what it can, batch by batch.
        assert described.pattern is STRICT or prefiltered or ends_are_known(edge, other), name


def draw(dice: Random) -> tuple[Question, Plan]:
    asked = question(dice) if dice.random() < 0.5 else shaped_question(dice)
    plan = bind(asked.text, asked.streams)
    return asked, optimize(plan) if dice.random() < 0.7 else plan


def test_what_is_said_of_edges_is_true_of_the_elements_that_they_carry() -> None:
    counterexamples: Counter[UpdatePattern] = Counter()
    patterns: Counter[UpdatePattern] = Counter()
    for seed in range(examples(110)):
        dice = Random(seed)
        asked, plan = draw(dice)
        try:
            pipeline, one, two = run_twice(plan, asked.streams, dice)
            patterns.update(edge.pattern for edge in describe_edges(pipeline).values())
            counterexamples.update(pattern for _, pattern in check(pipeline, one, two))
            check_structures(pipeline, one)
        except BaseException as error:
            error.add_note(f"seed {seed}, streams {asked.streams}:\n{asked.text}")
            raise
    print(f"{dict(patterns)} edges, of which {dict(counterexamples)} show that no stronger pattern holds")
    assert set(patterns) == set(UpdatePattern)
    assert set(counterexamples) == {WEAKEST, WEAK, STRICT}, "each weaker pattern is needed"


# ---- each operator ---------------------------------------------------------------------------------------------------

LEFT = [(0, 0, (1, "a")), (2, 0, (2, "b")), (3, 0, (1, "a")), (5, 0, (3, "d")), (9, 0, (1, "c"))]
RIGHT = [(1, 0, (1, "a")), (4, 0, (1, "a")), (5, 0, (2, "b")), (7, 0, (1, "c"))]
L, R = (arrange(name, {"k": INT, "x": VARCHAR}, rows, 0) for name, rows in (("l", LEFT), ("r", RIGHT)))
A, B = "l WINDOW(RANGE 8 MICROSECONDS)", "r WINDOW(RANGE 3 MICROSECONDS)"
ROW_BY_ROW = ((1,) * len(LEFT), (1,) * len(RIGHT))

# The pattern of the result of a query. The rows above, in batches of one row and in one batch, show that no stronger
# one holds.
PATTERNS: dict[str, UpdatePattern] = {
    "SELECT x FROM l": MONOTONIC,
    "SELECT DISTINCT x FROM l": MONOTONIC,
    "SELECT k, COUNT(*) AS n FROM l GROUP BY k": MONOTONIC,
    f"SELECT l.x FROM l JOIN {B} ON l.k = r.k": MONOTONIC,
    f"SELECT l.x FROM l JOIN (SELECT k, COUNT(*) AS n FROM {B} GROUP BY k) AS r ON l.k = r.k": MONOTONIC,
    f"SELECT l.x FROM l LEFT JOIN {B} ON l.k = r.k": MONOTONIC,
    f"SELECT x FROM l EXCEPT SELECT x FROM {B}": STRICT,
    "SELECT x FROM l ORDER BY x LIMIT 1": MONOTONIC,
    "SELECT x FROM l WINDOW(RANGE UNBOUNDED)": MONOTONIC,
    "SELECT DISTINCT x FROM l WINDOW(RANGE UNBOUNDED)": MONOTONIC,
    "SELECT l.x FROM l WINDOW(RANGE UNBOUNDED) JOIN r WINDOW(RANGE UNBOUNDED) ON l.k = r.k": MONOTONIC,
    f"SELECT x FROM {A}": WEAKEST,
    f"SELECT x || x AS y FROM {A} WHERE k = 1": WEAKEST,
    "SELECT x FROM l WINDOW(RANGE 8 MICROSECONDS SLIDE 2 MICROSECONDS)": WEAKEST,
    "SELECT x FROM l WINDOW(RANGE 8 MICROSECONDS SLIDE 5 MICROSECONDS)": WEAKEST,
    f"SELECT x FROM {A} UNION ALL SELECT x FROM r WINDOW(RANGE 8 MICROSECONDS)": WEAKEST,
    f"SELECT x FROM {A} GRANULARITY(4 MICROSECONDS)": WEAKEST,
    f"SELECT x FROM {A} GRANULARITY(3 MICROSECONDS)": WEAKEST,
    "SELECT x FROM DSTREAM(SELECT x FROM l [RANGE 3 MICROSECONDS]) AS d [RANGE 5 MICROSECONDS]": WEAKEST,
    f"SELECT x FROM {A} UNION ALL SELECT x FROM {B}": WEAK,
    f"SELECT l.x FROM {A} JOIN {B} ON l.k = r.k": WEAK,
    f"SELECT l.x FROM {A} JOIN r WINDOW(RANGE 8 MICROSECONDS) ON l.k = r.k": WEAK,
    f"SELECT x FROM {A} SEMI JOIN {B} ON l.k = r.k": WEAK,
    f"SELECT DISTINCT x FROM {A}": WEAK,
    f"SELECT x FROM {A} UNION MAX SELECT x FROM {B}": STRICT,
    f"SELECT x FROM {A} INTERSECT ALL SELECT x FROM {B}": STRICT,
    "SELECT x FROM l WINDOW(ROWS 2)": STRICT,
    "SELECT x FROM l WINDOW(PARTITION BY k ROWS 1)": STRICT,
    "SELECT x FROM l WINDOW(SESSION 3 MICROSECONDS)": STRICT,
    f"SELECT l.x, r.x AS y FROM {A} LEFT JOIN {B} ON l.k = r.k": STRICT,
    f"SELECT x FROM {A} ANTI JOIN {B} ON l.k = r.k": STRICT,
    f"SELECT x, EXISTS (SELECT 1 FROM {B} WHERE r.k = l.k) AS known FROM {A}": STRICT,
    f"SELECT k, COUNT(*) AS n FROM {A} GROUP BY k": STRICT,
    f"SELECT COUNT(*) AS n FROM {A}": STRICT,
    "SELECT COUNT(*) AS n FROM l": STRICT,
    f"SELECT x FROM {A} EXCEPT ALL SELECT x FROM {B}": STRICT,
    f"SELECT x FROM {A} ORDER BY x DESC LIMIT 1": STRICT,
    f"SELECT DISTINCT n FROM (SELECT COUNT(*) AS n FROM {A}) AS counts": STRICT,
}


@pytest.mark.parametrize("text", PATTERNS)
def test_pattern_of_a_result(text: str) -> None:
    plan = optimize(bind(text, [L, R]))
    shown: set[str] = set()
    for form in get_args(physical.StreamForm):
        pipeline = lower("q", plan, [L.declared, R.declared], 1, form=form)
        [result] = [fragment.id for fragment in pipeline.fragments if isinstance(fragment.route, ResultOf)]
        assert describe_edges(pipeline)[result].pattern is PATTERNS[text]
        runs: list[Run] = []
        for sizes in ((), ROW_BY_ROW):
            with watched() as run:
                run_plan(plan, [L, R], Cuts(sizes, 1, form), optimised=False)
            runs.append(run)
        shown |= {name.partition(".")[0] for name, _ in check(pipeline, runs[1], runs[0])}
    assert PATTERNS[text] is MONOTONIC or result in shown, "the rows show no more than a stronger pattern"


# ---- structures ------------------------------------------------------------------------------------------------------


def check_structures(pipeline: Pipeline, run: Run) -> None:
    """Every structure that had rows is one that the plan shows."""
    for fragment in pipeline.fragments:
        for number, node in enumerate(numbered(fragment.root)):
            shown = set(show_state(node).split(" + ")) - {""}
            assert run.kept[f"{fragment.id}.{number}"] <= shown, node.tag


STATES: Mapping[str, str] = {
    f"SELECT l.x FROM {A} JOIN {B} ON l.k = r.k": "hash",
    f"SELECT x FROM {A} SEMI JOIN r WINDOW(RANGE 5 MICROSECONDS) ON l.k = r.k": "hash + keyed + queue",
    f"SELECT x FROM {A} ANTI JOIN r WINDOW(RANGE 5 MICROSECONDS) ON l.k = r.k": "hash + calendar + keyed + queue",
    f"SELECT l.x FROM (SELECT DISTINCT k, x FROM {A}) l JOIN {B} ON l.k = r.k": "calendar + hash",
    f"SELECT DISTINCT x FROM {A}": "keyed + queue",
    f"SELECT k, COUNT(*) AS n FROM {A} GROUP BY k": "keyed + queue",
    "SELECT k, COUNT(*) AS n FROM l WINDOW(RANGE 8 MICROSECONDS SLIDE 4 MICROSECONDS) GROUP BY k": "keyed + panes",
    "SELECT x FROM l WINDOW(PARTITION BY k ROWS 1)": "keyed",
    "SELECT x FROM l WINDOW(SESSION 3 MICROSECONDS)": "held",
    f"SELECT x FROM {A} ORDER BY x DESC LIMIT 1": "queue",
}


@pytest.mark.parametrize("text", STATES)
def test_the_structures_of_an_operator_are_those_that_hold_its_rows(text: str) -> None:
    plan = optimize(bind(text, [L, R]))
    pipeline = lower("q", plan, [L.declared, R.declared], 1, form="changes")
    with watched() as run:
        run_plan(plan, [L, R], Cuts(ROW_BY_ROW, 1, "changes"), optimised=False)
    kept = {
        show_state(node): run.kept[f"{fragment.id}.{number}"]
        for fragment in pipeline.fragments
        for number, node in enumerate(numbered(fragment.root))
    }
    assert kept[STATES[text]] == set(STATES[text].split(" + "))


def test_an_operator_shows_structures_if_it_has_state() -> None:
    plan = optimize(
        bind(f"SELECT DISTINCT l.x, COUNT(*) AS n FROM {A} LEFT JOIN {B} ON l.k = r.k GROUP BY l.x", [L, R])
    )
    pipeline = lower("q", plan, [L.declared, R.declared], 1)
    for fragment in pipeline.fragments:
        for node in numbered(fragment.root):
            assert bool(show_state(node)) == bool(operator_for(node).logs), node.tag
