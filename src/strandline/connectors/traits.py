"""Traits of connectors, and connectors of other packages.

A package adds a source or sink by an entry point in the group `strandline.sources` or `strandline.sinks`; its name is
the function that users write in SQL, its object the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from strandline.core.errors import SetupError


@dataclass(frozen=True, slots=True)
class Traits:
    """The promises of a connector, shown by `doctor` and by the docs.

    A replayable source gives the same rows again after a crash; an ordered one gives them in one order of arrival. A
    sink is replayable if its output can be read again, ordered if batches come in order, and idempotent if a repeated
    batch has no further effect. `note` describes how, or what is lost without the promise.
    """

    replayable: bool
    ordered: bool
    idempotent: bool
    note: str

    def __str__(self) -> str:
        kept = [name for name in ("replayable", "ordered", "idempotent") if getattr(self, name)]
        return ", ".join(kept) or "none"


@dataclass(frozen=True, slots=True)
class Needs:
    """A library that only some connectors need, and the extra of ours that brings it."""

    module: str
    extra: str

    def load(self) -> Any:
        """The library, imported where it is needed."""
        try:
            return import_module(self.module)
        except ImportError as error:
            raise SetupError(
                f"the package for {self.extra} is not installed",
                code="extra-missing",
                detail=f"{type(error).__name__}: {error}",
                hint=f"Run `pip install 'strandline[{self.extra}]'`.",
            ) from None


def is_foreign(connector: type) -> bool:
    """True for a connector of another package."""
    return connector.__module__.partition(".")[0] != "strandline"


@cache
def load_plugins(group: str) -> dict[str, Any]:
    """The connectors of other packages, by the name that users write."""
    connectors: dict[str, Any] = {}
    for point in entry_points(group=group):
        try:
            connectors[point.name.lower()] = point.load()
        except Exception as error:  # whatever a foreign module does when it is imported
            package = point.dist.name if point.dist is not None else point.value
            raise SetupError(
                f'cannot load "{point.name}" of the package {package}',
                code="plug-in",
                detail=f"{type(error).__name__}: {error}",
                hint="Fix or uninstall that package.",
            ) from None
    return connectors
