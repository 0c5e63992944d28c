"""Available sources and sinks and their traits, for `doctor` and the docs."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from strandline.connectors.sinks import known_sinks
from strandline.connectors.sources.base import known_sources
from strandline.connectors.traits import Needs, Traits


@dataclass(frozen=True, slots=True)
class ConnectorEntry:
    """A source or sink by the name that users write; `missing` is the extra that is not installed."""

    name: str
    direction: Literal["source", "sink"]
    traits: Traits
    needs: Needs | None

    @property
    def missing(self) -> str | None:
        needs = self.needs
        return needs.extra if needs is not None and find_spec(needs.module) is None else None


def connectors() -> list[ConnectorEntry]:
    """All sources, then all sinks, ours and those of other packages."""
    # Connectors of other packages may lack newer attributes.
    sources = [ConnectorEntry(n, "source", s.traits, getattr(s, "needs", None)) for n, s in known_sources().items()]
    sinks = [ConnectorEntry(n, "sink", s.traits, getattr(s, "needs", None)) for n, s in known_sinks().items()]
    return sorted(sources, key=lambda connector: connector.name) + sorted(sinks, key=lambda connector: connector.name)
