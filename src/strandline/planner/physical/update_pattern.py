"""Update patterns of the edges of a physical plan: what is known of the end of an element when it is sent.

After Golab and Özsu, "Update-pattern-aware modeling and processing of continuous queries" (2005), sections 3 and 5.2,
with two corrections. A union of windows of different lengths is not first in first out, so it is weak. Grouping, which
they call weak because a new aggregate takes the place of the old one, is strict: here an element has an end, and that
of an aggregate is not known before the next one comes. So are count windows, which they leave out.

A pattern is a promise about the elements that an edge really carries. Where it cannot be seen from the operators alone
it is not given, though it may hold by chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from strandline.core.temporal import FOREVER
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, Pipeline, StreamForm, numbers, sources

CHRONON: Final = 1


class UpdatePattern(Enum):
    """How the elements of an edge leave; the first that holds.

    MONOTONIC   they are valid for one instant, as the rows of a log, or they never end: nothing has to be taken back
    WEAKEST     the end is known when an element is sent, and elements end in the order in which they start
    WEAK        the end is known when an element is sent
    STRICT      what comes later may end it
    """

    MONOTONIC = "MON"
    WEAKEST = "WKS"
    WEAK = "WK"
    STRICT = "STR"


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """The pattern of an edge; and how long its elements are valid in microseconds, if all are valid equally long."""

    pattern: UpdatePattern
    duration_us: int | None = None


INSTANTS: Final = Lifetimes(UpdatePattern.MONOTONIC, CHRONON)
ENDLESS: Final = Lifetimes(UpdatePattern.MONOTONIC, FOREVER)
IN_ORDER: Final = Lifetimes(UpdatePattern.WEAKEST)
KNOWN: Final = Lifetimes(UpdatePattern.WEAK)
UNKNOWN: Final = Lifetimes(UpdatePattern.STRICT)


def derive_lifetimes(node: Node, below: Sequence[Lifetimes]) -> Lifetimes:
    """The lifetimes of the elements that an operator sends, from those of its inputs."""
    match node:
        case physical.Filter() | physical.Project() | physical.Repeat() | physical.SamplingRate():
            return below[0]
        case physical.Reorder() | physical.FirstOccurrence() | physical.TopKPrefilter() | physical.Exchange():
            return below[0]
        case physical.TimeWindow(range_us, slide_us):
            return _window(below[0], range_us, slide_us)
        case physical.AlignTime(granule_us):
            return _align(below[0], granule_us)
        case physical.Split(length_us):
            # An element that may never end has ever more parts: how many come with an end depends on the batches.
            bounded = below[0].duration_us is not None and below[0] != ENDLESS
            return _of_duration(length_us) if bounded else UNKNOWN
        case physical.ChangeStream() | physical.InsertStream():
            return INSTANTS
        case physical.UnionAll():
            return _merge(below)
        case physical.HashJoin():
            return INSTANTS if INSTANTS in below else _meet(below)
        case physical.OuterHashJoin(kind):
            preserved = below if kind == "full" else below[:1]
            if all(side == INSTANTS for side in preserved):
                return INSTANTS
            return _meet(below) if kind == "semi" else UNKNOWN
        case physical.Distinct():
            return _meet(below)
        case physical.IncrementalAggregate(keys):  # without keys there is a group even over nothing
            return INSTANTS if keys and below[0] == INSTANTS else UNKNOWN
        case physical.TopK() | physical.Rank():
            return INSTANTS if below[0] == INSTANTS else UNKNOWN
        case physical.CountWindow() | physical.SessionWindow() | physical.Coalesce():
            return UNKNOWN
        case physical.Input():
            raise AssertionError("the lifetimes of an input are those of what is sent to it")
        case _:
            assert_never(node)


def _of_duration(duration_us: int) -> Lifetimes:
    return INSTANTS if duration_us == CHRONON else Lifetimes(UpdatePattern.WEAKEST, duration_us)


def _window(source: Lifetimes, range_us: int | None, slide_us: int) -> Lifetimes:
    """Both ends of an element grow with its time, whatever is below. Rounded to the slide they move by the same amount
    if the range is a multiple of it."""
    if source == UNKNOWN:
        return UNKNOWN
    if range_us is None:
        return ENDLESS
    return _of_duration(range_us) if range_us % slide_us == 0 else IN_ORDER


def _align(source: Lifetimes, granule_us: int) -> Lifetimes:
    """Both ends are rounded up, which keeps their order."""
    if source.duration_us is None or source == ENDLESS:
        return source
    return _of_duration(source.duration_us) if source.duration_us % granule_us == 0 else IN_ORDER


def _merge(inputs: Sequence[Lifetimes]) -> Lifetimes:
    """Elements of all inputs: in order if all are valid equally long."""
    if inputs[0].duration_us is not None and all(each == inputs[0] for each in inputs):
        return inputs[0]
    return UNKNOWN if UNKNOWN in inputs else KNOWN


def _meet(inputs: Sequence[Lifetimes]) -> Lifetimes:
    """Parts of elements, valid while all of some are: they start later than these, and may end in any order."""
    if all(each == inputs[0] for each in inputs) and inputs[0].pattern is UpdatePattern.MONOTONIC:
        return inputs[0]
    return UNKNOWN if UNKNOWN in inputs else KNOWN


# ---- the edges of a pipeline -----------------------------------------------------------------------------------------

# They treat every row by itself, so they send the form that they get.
_PASSES_FORM_ON = (physical.Filter, physical.Project, physical.Repeat, physical.UnionAll, physical.Exchange)


@dataclass(frozen=True, slots=True)
class Edge:
    """What an operator, or a stream, sends."""

    lifetimes: Lifetimes
    form: StreamForm = "intervals"

    @property
    def pattern(self) -> UpdatePattern:
        return self.lifetimes.pattern

    def __str__(self) -> str:
        return self.pattern.value + ("±" if self.form == "changes" else "")


def describe_edges(pipeline: Pipeline) -> dict[str, Edge]:
    """The edges of a plan by where they begin: an operator (`f1.0`), a stream that is read (`source:name`), or a
    fragment that sends its output on (`f1`)."""
    edges = {f"source:{stream.name}": Edge(KNOWN if stream.has_intervals else INSTANTS) for stream in pipeline.streams}
    by_port = dict(edges)
    for fragment in pipeline.fragments:
        described: dict[Node, Edge] = {}
        for node, number in numbers(fragment.root).items():
            below = [by_port[s.name] if isinstance(s, physical.Input) else described[s] for s in sources(node)]
            lifetimes = derive_lifetimes(node, [edge.lifetimes for edge in below])
            described[node] = edges[f"{fragment.id}.{number}"] = Edge(lifetimes, _derive_form(node, below))
        root = fragment.root
        sent = by_port[root.name] if isinstance(root, physical.Input) else described[root]
        edges[fragment.id] = sent
        if isinstance(fragment.route, physical.ExchangeTo):
            by_port[fragment.route.port] = sent
    return edges


def _derive_form(node: Node, below: Sequence[Edge]) -> StreamForm:
    if isinstance(node, physical.Coalesce):
        return "changes"
    if isinstance(node, _PASSES_FORM_ON):
        return "changes" if any(edge.form == "changes" for edge in below) else "intervals"
    form: StreamForm = getattr(node, "form", "intervals")
    return form


def show_state(node: Node) -> str:
    """The structures in which an operator keeps rows between batches; nothing, if it keeps none.

    queue   by start or by end: what is due is taken from the front
    hash    by key, in segments that are dropped when all of their elements have ended
    keyed   by key; the rows of a key are replaced by newer ones
    panes   sums of the elements of a group that end together, by their end
    held    all rows are written again in every batch
    """
    replaced = "keyed" if getattr(node, "form", "intervals") == "changes" else "held"
    match node:
        case physical.Reorder() | physical.TopK() | physical.Rank() | physical.ChangeStream() | physical.Split():
            return "queue"
        case physical.HashJoin() | physical.FirstOccurrence():
            return "hash"
        case physical.OuterHashJoin("semi"):
            return "hash + keyed + queue"
        case physical.OuterHashJoin("mark") if replaced == "held":
            return "hash + held + keyed + queue"
        case physical.OuterHashJoin():
            return f"hash + {replaced} + queue"
        case physical.Distinct():
            return "keyed + queue"
        case physical.IncrementalAggregate():
            return f"{replaced} + panes" if node.panes else f"{replaced} + queue"
        case physical.CountWindow():
            return replaced
        case physical.SessionWindow() | physical.Coalesce():
            return "held"
        case _:
            return ""
