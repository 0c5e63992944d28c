"""The form of every edge of a physical plan: elements as intervals, or as changes.

A consumer states what it takes, and a producer gives it as far as it can. Intervals are changes, too: of a stream whose
ends are all known. So the only edges that need a converter are those where changes come to an operator that takes none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, Pipeline, StreamForm, schema, sources, with_sources

# Given the producer and the form that the rule has chosen, the form that it shall have.
EdgeChoice: TypeAlias = Callable[[Node, StreamForm], StreamForm]


@dataclass(frozen=True, slots=True)
class FormStrategy:
    """How the form of an edge is chosen, where its consumer takes both. Plans of users have `BY_RULE`; tests and
    experiments may force a form, with a converter where the producer has another one."""

    choose: EdgeChoice
    forces: bool = True


# Changes wherever elements may stay open beyond a batch, so that nothing is sent twice.
BY_RULE: Final = FormStrategy(lambda node, form: form, forces=False)
ALL_INTERVALS: Final = FormStrategy(lambda node, form: "intervals")
ALL_CHANGES: Final = FormStrategy(lambda node, form: "changes")


def assign_forms(
    root: Node, wanted: StreamForm, interval_streams: frozenset[str], strategy: FormStrategy = BY_RULE
) -> Node:
    """The plan with a form for every edge, and a result in the form `wanted`. `interval_streams` are the inputs whose
    rows say themselves how long they are valid."""
    forms = _Forms(interval_streams, strategy)
    if wanted == "intervals":
        return forms.edge(root, "intervals", takes_changes=False)
    node = forms.edge(root, "changes", takes_changes=True)
    # What is cut all the same is put together again at the end.
    if not is_cut(node):
        return node if _can_announce(node) else physical.HoldOpen(node)
    return physical.Coalesce(forms.edge(root, "intervals", takes_changes=False), "changes")


def has_open_elements(pipeline: Pipeline, query: str) -> bool:
    """True if elements of a query's result may come before their end is known."""
    mine = physical.fragments_of(pipeline, query)
    feeders = {
        fragment.route.port: fragment.root for fragment in mine if isinstance(fragment.route, physical.ExchangeTo)
    }
    results = [fragment.root for fragment in mine if isinstance(fragment.route, physical.ResultOf)]
    return any(form_of(root, feeders) == "changes" for root in results)


def is_cut(node: Node) -> bool:
    """True if elements of the output may be cut at the watermark, and go on in the next slice."""
    match node:
        case physical.TopK() | physical.Rank() | physical.SessionWindow() | physical.AsIntervals():
            return True
        case (
            physical.IncrementalAggregate() | physical.CountWindow() | physical.OuterHashJoin() | physical.FoldChanges()
        ) if node.form == "intervals":
            return True
        case physical.LookupJoin():
            return is_cut(node.left)
        case physical.Coalesce(_, "changes") | physical.Input() | physical.ChangeStream() | physical.InsertStream():
            return False
        case _:
            return any(is_cut(source) for source in sources(node))


def form_of(node: Node, feeders: Mapping[str, Node] = MappingProxyType({})) -> StreamForm:
    """The form of the output of an operator. `feeders` are the roots of the fragments that send to its ports; a port
    without one has intervals."""
    match node:
        case (
            physical.IncrementalAggregate()
            | physical.CountWindow()
            | physical.HashJoin()
            | physical.OuterHashJoin()
            | physical.LookupJoin()
            | physical.Distinct()
        ):
            return node.form
        case physical.Coalesce() | physical.FoldChanges() | physical.Reorder():
            return node.form
        case physical.AsChanges() | physical.HoldOpen():
            return "changes"
        case (
            physical.Filter()
            | physical.Project()
            | physical.Unnest()
            | physical.Repeat()
            | physical.UnionAll()
            | physical.Exchange()
        ):
            has_changes = any(form_of(source, feeders) == "changes" for source in sources(node))
            return "changes" if has_changes else "intervals"
        case physical.Input(name, _, form):
            return form_of(feeders[name], feeders) if name in feeders else form
        case _:
            return "intervals"


def reads_table(node: Node) -> bool:
    """True if what an operator reads are the changes of a table, as they lie in its log: from a source, with nothing in
    between that has a state."""
    match node:
        case physical.Input(_, _, form):
            return form == "changes"
        case physical.Filter() | physical.Project() | physical.Unnest() | physical.Exchange() | physical.Reorder():
            return reads_table(node.source)
        case _:
            return False


def _can_announce(node: Node) -> bool:
    """False if elements without an end pass that no operator has in its state."""
    match node:
        case physical.Filter() | physical.Project() | physical.Unnest() | physical.Repeat() | physical.UnionAll():
            return all(map(_can_announce, sources(node)))
        case physical.Reorder():
            return node.form == "intervals"
        case _:
            return True


@dataclass(frozen=True, slots=True)
class _Forms:
    interval_streams: frozenset[str]
    strategy: FormStrategy

    def edge(self, node: Node, wanted: StreamForm, *, takes_changes: bool) -> Node:
        """A producer for a consumer that takes intervals only, or changes too and would rather have those wanted."""
        form: StreamForm = "intervals"
        if not _may_have_state(node):
            return self.assign(node, form)  # in stage 0 rows have the form in which they are read
        if takes_changes and not self.is_instants(node):
            form = self.strategy.choose(node, "changes" if reads_table(node) else wanted)
        made = self.assign(node, form)
        if form == "intervals" and form_of(made) == "changes":
            return physical.AsIntervals(made)
        if form == "changes" and form_of(made) == "intervals" and self.strategy.forces:
            return physical.AsChanges(made)
        return made

    def assign(self, node: Node, wanted: StreamForm) -> Node:
        """The operator with a form for its output, if it has a choice, and for each of its inputs."""
        match node:
            case (
                physical.Filter()
                | physical.Project()
                | physical.Unnest()
                | physical.Repeat()
                | physical.UnionAll()
                | physical.Exchange()
            ):
                inputs = tuple(self.edge(source, wanted, takes_changes=True) for source in sources(node))
                return with_sources(node, inputs)
            case physical.Reorder() if reads_table(node):
                return replace(node, source=self.assign(node.source, wanted), form="changes")
            case physical.CountWindow() | physical.FoldChanges():
                return replace(node, form=wanted, source=self.edge(node.source, "intervals", takes_changes=False))
            case physical.IncrementalAggregate(_, aggregates):
                # The type of a user-defined state may change from batch to batch, so that states cannot be kept apart.
                form = "intervals" if any(call.user for _, call in aggregates) else wanted
                source = self.edge(node.source, "changes", takes_changes=True)
                by_panes = node.panes and form_of(source) == "intervals"
                # Few changes concern a MIN or MAX: where rows are sent for what changes, neighbours are often equal.
                extremes = bool(aggregates) and all(call.function in ("min", "max") for _, call in aggregates)
                coalesces = node.coalesces or (form == "changes" and form_of(source) == "changes" and extremes)
                node = replace(node, source=source, panes=by_panes, coalesces=coalesces)
                return replace(node, form=form, input_form=form_of(source))
            case physical.Distinct():
                takes_changes = (wanted == "changes" or reads_table(node.source)) and bool(schema(node))
                source = self.edge(node.source, wanted, takes_changes=takes_changes)
                return replace(node, source=source, form=form_of(source))
            case physical.ChangeStream():
                source = self.edge(node.source, "changes", takes_changes=True)
                return replace(node, source=source, input_form=form_of(source))
            case physical.FirstOccurrence() | physical.InsertStream():
                # They take elements that never end, and must not see them cut.
                whole = _Forms(self.interval_streams, ALL_INTERVALS)
                return replace(node, source=whole.edge(node.source, "intervals", takes_changes=False))
            case physical.HashJoin():
                return self.join(node, wanted)
            case physical.OuterHashJoin():
                return self.outer_join(node, wanted)
            case physical.LookupJoin():
                # An element is looked up where it begins: of one that is cut, the parts do not.
                left = _Forms(self.interval_streams, BY_RULE).edge(node.left, "changes", takes_changes=True)
                right = self.edge(node.right, "changes", takes_changes=True)
                forms = (form_of(left), form_of(right))
                return replace(node, left=left, right=right, input_forms=forms, form=forms[0])
            case _:
                inputs = tuple(self.edge(source, "intervals", takes_changes=False) for source in sources(node))
                return with_sources(node, inputs)

    def join(self, node: physical.HashJoin, wanted: StreamForm) -> Node:
        # All pairs of an instant end with it, however long the other element lasts.
        ends_are_known = any(map(self.is_instants, sources(node)))
        inputs_wanted: StreamForm = "changes" if ends_are_known else wanted
        left, right = (self.edge(side, inputs_wanted, takes_changes=True) for side in sources(node))
        forms = (form_of(left), form_of(right))
        form: StreamForm = "changes" if "changes" in forms and not ends_are_known else "intervals"
        return replace(node, left=left, right=right, input_forms=forms, form=form)

    def outer_join(self, node: physical.OuterHashJoin, wanted: StreamForm) -> Node:
        ends_are_known = self.is_instants(node)
        takes_changes = ends_are_known or wanted == "changes" or any(map(reads_table, sources(node)))
        left, right = (self.edge(side, "changes", takes_changes=takes_changes) for side in sources(node))
        forms = (form_of(left), form_of(right))
        if forms == physical.BOTH_INTERVALS:
            return replace(node, left=left, right=right, form=wanted)
        form: StreamForm = "intervals" if ends_are_known else "changes"
        return replace(node, left=left, right=right, form=form, input_forms=forms)

    def is_instants(self, node: Node) -> bool:
        """True if every element is valid for one instant: it ends before the watermark, or with it."""
        match node:
            case physical.Input(name):
                return name.removeprefix("source:") not in self.interval_streams
            case physical.ChangeStream() | physical.InsertStream():
                return True
            case physical.HashJoin():
                return any(map(self.is_instants, sources(node)))
            case physical.OuterHashJoin(kind):
                sides = sources(node) if kind == "full" else (node.left,)
                return all(map(self.is_instants, sides))
            case physical.LookupJoin():
                return self.is_instants(node.left)
            case physical.IncrementalAggregate(keys):
                return bool(keys) and self.is_instants(node.source)
            case physical.TimeWindow() | physical.CountWindow() | physical.SessionWindow() | physical.AlignTime():
                return False
            case physical.FoldChanges():
                return False
            case _:
                return all(map(self.is_instants, sources(node)))


def _may_have_state(node: Node) -> bool:
    """False in the fragments that read the sources, which have none."""
    return isinstance(node, physical.Exchange) or any(map(_may_have_state, sources(node)))
