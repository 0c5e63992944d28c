"""What an engine is: where pipelines run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from strandline.core.errors import StrandlineError
from strandline.core.log import ENGINE, INFO, log_event
from strandline.runtime.pipeline import PipelineDriver, RunningPipeline, log_resumed

# Called with what is being waited for, in a few words.
Note: TypeAlias = Callable[[str], None]


class Engine(ABC):
    """Spark (`engines/spark/engine.py`), or this process (`engines/local.py`)."""

    batch_seconds = 0.02  # what a batch takes in any case, about

    @abstractmethod
    def default_shards(self) -> int:
        """Number of shards of the state, unless the user sets it."""

    def likely_shards(self) -> int:
        """The same without starting anything."""
        return self.default_shards()

    def cores(self) -> int:
        """How many cores pipelines may use; without starting anything."""
        return 1

    def check_restart(self, pipeline: RunningPipeline) -> None:
        """Refuse a pipeline that cannot go on here; any can by default."""
        return

    @abstractmethod
    def run(self, pipeline: RunningPipeline) -> PipelineDriver:
        """Start the batches of a pipeline."""

    def warm(self, note: Note) -> None:
        """Start what pipelines run on; nothing by default."""
        return

    def lost(self) -> StrandlineError | None:
        """Why the engine is gone, if it is; the next query starts it again."""
        return None

    def log_file(self) -> Path | None:
        return None

    def close(self) -> None:
        """End what was started here; nothing by default."""
        return


def log_start(pipeline: RunningPipeline, engine: str) -> None:
    log_event(
        ENGINE,
        INFO,
        "query started",
        name=pipeline.name,
        engine=engine,
        checkpoint=pipeline.checkpoint,
        shards=pipeline.physical.shards,
    )
    assert pipeline.chain is not None, "engines run what was opened with a checkpoint"
    if pipeline.chain.last_offset is not None or pipeline.last_batch >= 0:
        log_resumed(pipeline)
