"""Where a pipeline's memory lies, and which queries it belongs to."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from strandline.algebra.user import user_functions
from strandline.catalog import StreamStatistics
from strandline.errors import CheckpointError
from strandline.physical.plan import Pipeline
from strandline.temporary import temporary_directory


class Checkpoint:
    """The directory with Spark's logs, our state and the identity of the queries that they belong to."""

    def __init__(self, path: Path, is_temporary: bool = False) -> None:
        self.path = path
        self.is_temporary = is_temporary
        self.fresh = not self._identity.exists()
        self._claimed: dict[str, Any] = {}
        self._noted: dict[str, Any] = {}

    @staticmethod
    def temporary() -> Checkpoint:
        return Checkpoint(temporary_directory("checkpoint"), is_temporary=True)

    @property
    def _identity(self) -> Path:
        return self.path / "queries.json"

    def _known(self) -> dict[str, Any]:
        try:
            known = json.loads(self._identity.read_text())
            if isinstance(known, dict) and {"fingerprint", "buckets", "queries", "plan"} <= set(known):
                return known
        except ValueError:
            pass
        raise CheckpointError(
            f"{self._identity} is damaged",
            code="checkpoint-damaged",
            hint="Restore it from a copy. Nothing was overwritten.",
        )

    def buckets(self) -> int | None:
        """How many buckets the state was written with; a restart must use as many."""
        return None if self.fresh else int(self._known()["buckets"])

    def statistics(self) -> dict[str, StreamStatistics] | None:
        """What its plan was made with: a restart must make the same, whatever was learned since. None if it is new, or
        was made by an earlier version, which went by declarations alone."""
        made_with = None if self.fresh else self._known().get("statistics")
        if made_with is None:
            return None
        return {name: StreamStatistics(known["rate"], known["values"]) for name, known in made_with.items()}

    def costs(self) -> dict[str, Any] | None:
        """The constants of the cost model that its plan was made with; None if it is new, or of an earlier version."""
        return None if self.fresh else self._known().get("costs")

    def limits(self) -> dict[str, float | None] | None:
        """The capacities that its plan was made for, by query; None if it is new, or of an earlier version."""
        return None if self.fresh else self._known().get("limits")

    def note(self, **facts: Any) -> None:
        """Remember more with the identity, for a restart; of no effect if it is one."""
        self._noted |= facts

    @property
    def owner(self) -> str:
        """What results elsewhere say of whom they belong to: a name that no other checkpoint has."""
        return str(self._claimed.get("id") or self._claimed["fingerprint"])

    def recognise(
        self,
        pipeline: Pipeline,
        plan: str,
        places: Mapping[str, str],
        made_with: Mapping[str, StreamStatistics],
    ) -> None:
        """Make sure that the checkpoint belongs to these queries and their results, or to nobody. Changes nothing.

        `made_with` is what the plan was made with, for a restart to remember.
        """
        declared = repr([(s.name, s.columns, s.source.function, s.source.arguments, sorted(s.source.options.items()),
                          s.time_columns, s.disorder_us, s.idle_after_us) for s in pipeline.streams])  # fmt: skip
        # By name and types: what a function does may change, as long as it fits in.
        functions = "".join(f"\n{function}" for _, function in sorted(user_functions(pipeline).items()))
        identity = f"{plan}\n{declared}\n{sorted(places.items())}{functions}"
        fingerprint = hashlib.sha256(identity.encode()).hexdigest()
        names = [query.name for query in pipeline.queries]
        if not self.fresh:
            known = self._known()
            if known["fingerprint"] != fingerprint:
                raise CheckpointError(
                    f"the checkpoint {self.path} belongs to other queries",
                    code="checkpoint-foreign",
                    detail=f"It was made for {', '.join(known['queries'])} with this plan:\n{indent(known['plan'])}",
                    hint="Use another --checkpoint or --out, or run the script that made it. Nothing was changed.",
                )
            self._claimed = known
            return
        own = {"id": uuid.uuid4().hex, "fingerprint": fingerprint}
        used = {s.name: asdict(made_with[s.name]) for s in pipeline.streams if s.name in made_with}
        self._claimed = {**own, "buckets": pipeline.buckets, "queries": names, "plan": plan, "statistics": used}

    def claim(self) -> None:
        """Say in the checkpoint whose it is."""
        if not self.fresh:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if any(self.path.iterdir()):
                raise CheckpointError(
                    f"{self.path} is not empty and not a checkpoint of strandline",
                    code="checkpoint-foreign",
                    hint="Choose an empty or new directory.",
                )
            temporary = self._identity.with_suffix(".tmp")
            temporary.write_text(json.dumps({**self._claimed, **self._noted}, indent=1))
            os.replace(temporary, self._identity)
        except OSError as error:
            raise CheckpointError(
                f"the checkpoint {self.path} cannot be written",
                code="checkpoint-unwritable",
                detail=str(error),
                hint="Choose another directory with --checkpoint, or mend its permissions.",
            ) from None


def indent(text: str) -> str:
    return "\n".join("  " + line for line in text.splitlines())
