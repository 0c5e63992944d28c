"""Which operators may have results later than their watermark: those between shared window joins, which put off work,
and the results of queries.

What such an operator sends is complete up to a reach of its own. Who reads it goes by that, and holds back what else it
reads; that is possible where elements come as intervals, and where a reader has a state to keep them in.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.core.identity_cache import cached_by_identity
from strandline.planner.physical import plan as physical
from strandline.planner.physical.forms import form_of
from strandline.planner.physical.plan import ExchangeTo, Fragment, Node, Pipeline, numbers, sources


def find_waiting(pipeline: Pipeline) -> Mapping[str, frozenset[int]]:
    """For each fragment the numbers of its operators that may wait, as `numbered` has them."""
    return _find(pipeline)[0]


def find_prompt(pipeline: Pipeline) -> frozenset[str]:
    """The fragments that must take all of what they read: some of it is needed up to the watermark."""
    return _find(pipeline)[1]


@cached_by_identity
def _find(pipeline: Pipeline) -> tuple[Mapping[str, frozenset[int]], frozenset[str]]:
    feeders = {f.route.port: f.root for f in pipeline.fragments if isinstance(f.route, ExchangeTo)}
    prompt: set[str] = set()  # ports that must be complete up to the watermark
    waiting: dict[str, frozenset[int]] = {}
    in_time: set[str] = set()
    for fragment in sorted(pipeline.fragments, key=lambda fragment: -fragment.stage):  # readers before senders
        waiting[fragment.id], ports = _find_within(fragment, feeders, frozenset(prompt))
        prompt |= ports
        if ports or len(waiting[fragment.id]) < len(numbers(fragment.root)):
            in_time.add(fragment.id)
    return waiting, frozenset(in_time)


def _find_within(
    fragment: Fragment, feeders: Mapping[str, Node], prompt: frozenset[str]
) -> tuple[frozenset[int], set[str]]:
    """The operators of a fragment that may wait, and the ports that may not."""
    number_of = numbers(fragment.root)
    must: set[int] = set()
    ports: set[str] = set()

    def demand(node: Node) -> None:
        if isinstance(node, physical.Input):
            ports.add(node.name)
        else:
            must.add(number_of[node])

    sends_on = isinstance(fragment.route, ExchangeTo)
    if isinstance(fragment.root, physical.Input) or (sends_on and fragment.route.port in prompt):  # type: ignore[union-attr]
        demand(fragment.root)
    for node, number in reversed(number_of.items()):
        inputs = sources(node)
        by_changes = [form_of(source, feeders) == "changes" for source in inputs]
        is_ahead = isinstance(node, physical.Reorder) and bool(node.below)
        # In front of a single input within the fragment nothing is held back: it is a slice up to its reach.
        holds_back = len(inputs) > 1 or any(isinstance(source, physical.Input) for source in inputs)
        if number in must or is_ahead or (holds_back and any(by_changes)):
            for source in inputs:
                demand(source)
    return frozenset(number_of.values()) - must, ports
