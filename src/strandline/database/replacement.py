"""What changes in the graph of a checkpoint before it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strandline.connectors.sinks import Sink
from strandline.core.errors import CheckpointError
from strandline.database.statements import BoundQuery
from strandline.runtime.checkpoint.versions import Start


@dataclass(frozen=True, slots=True)
class AddedQuery:
    """A query that is added to a graph, and where it begins; it may replace an earlier one of its name, whose results
    are moved away."""

    query: BoundQuery
    start: Start
    replaces: bool = False


@dataclass(frozen=True, slots=True)
class Replacement:
    """Queries that a graph loses, by name with the sinks that they have written to, and those that it gets. A sink is
    None if it cannot be made any more."""

    dropped: Mapping[str, Sink | None]
    added: Sequence[AddedQuery]

    def former_sinks(self) -> dict[str, Sink]:
        """The sinks of the dropped queries, for a batch that was interrupted and runs once more as it was."""
        sinks: dict[str, Sink] = {}
        for name, sink in self.dropped.items():
            if sink is None:
                raise CheckpointError(
                    f"a batch was interrupted, and the sink of {name} is not there to write it again",
                    code="update-interrupted",
                    hint="Run the script as it was until the batch is over, then update; or start over with --fresh.",
                )
            sinks[name] = sink
        return sinks
