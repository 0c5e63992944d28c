"""Tables whose rows matter when a query comes to its end.

An element of a table that was sent without an end ends when everything does. An operator above may depend on it:
then the source sends every row of the table once more, with the end `FOREVER`. Where all that a table makes ends by
itself, as pairs with the rows of a time window do, that would be wasted work.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, Pipeline, sources

_SOURCE = "source:"


def tables_open_at_end(pipeline: Pipeline) -> frozenset[str]:
    """The tables of a pipeline that may have made elements which are open at the end of it."""
    return frozenset(stream.name for stream in pipeline.streams if _Ends(pipeline, stream.name).is_open_at_end())


class _Ends:
    def __init__(self, pipeline: Pipeline, table: str) -> None:
        self.roots = [fragment.root for fragment in pipeline.fragments if isinstance(fragment.route, physical.ResultOf)]
        self.feeders: Mapping[str, Node] = {
            fragment.route.port: fragment.root
            for fragment in pipeline.fragments
            if isinstance(fragment.route, physical.ExchangeTo)
        }
        self.with_intervals = {f"{_SOURCE}{stream.name}" for stream in pipeline.streams if stream.has_intervals}
        self.is_changing = any(stream.name == table and stream.table == "changing" for stream in pipeline.streams)
        self.table = f"{_SOURCE}{table}"

    def is_open_at_end(self) -> bool:
        return self.is_changing and any(map(self.may_be_open, self.roots))

    def may_be_open(self, node: Node) -> bool:
        """True if an element of the output may be open at the end because one of the table is."""
        match node:
            case physical.Input(name):
                return name == self.table if name not in self.feeders else self.may_be_open(self.feeders[name])
            case physical.ChangeStream():  # what is open is neither inserted nor deleted at the end
                return False
            case physical.HashJoin(left=left, right=right):
                return not (self.ends(left) or self.ends(right)) and any(map(self.may_be_open, (left, right)))
            case physical.OuterHashJoin(kind, left=left, right=right) if kind != "full":
                return not self.ends(left) and any(map(self.may_be_open, (left, right)))
            case _:
                return any(map(self.may_be_open, sources(node)))

    def ends(self, node: Node) -> bool:
        """True if every element of the output ends by itself, whatever else happens."""
        match node:
            case physical.Input(name):
                return self.ends(self.feeders[name]) if name in self.feeders else name not in self.with_intervals
            case physical.TimeWindow(range_us):
                return range_us is not None
            case physical.Route(use):
                return use.left[0] is not None or use.right[0] is not None
            case physical.ChangeStream() | physical.InsertStream() | physical.SessionWindow():
                return True
            case physical.CountWindow() | physical.FoldChanges():
                return False
            case physical.HashJoin():
                return any(map(self.ends, sources(node)))
            case physical.OuterHashJoin(kind) if kind != "full":
                return self.ends(node.left)
            case physical.IncrementalAggregate(keys):
                return bool(keys) and self.ends(node.source)
            case _:
                return all(map(self.ends, sources(node)))
