"""Drives a pipeline in one process, without Spark: for tests, documentation and `--engine local`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from strandline.connectors.sinks.parquet_parts import ParquetTarget, open_result_writer
from strandline.connectors.sources.base import Source, open_source
from strandline.core.durable import encode_name
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.commit import BatchReport, Delivery
from strandline.runtime.exchange import Message, decode, encode
from strandline.runtime.ingest import ingest
from strandline.runtime.offsets import OffsetPlanner, InputSplit, plan_splits
from strandline.runtime.stage import StageOutput, run_stage
from strandline.runtime.state.segments import States
from strandline.runtime.watermark import SourceStatus, merge_statuses
from strandline.shedding.controller import SheddingController


class LocalRun:
    """The same fragments, exchanges and messages as on Spark, one bucket after the other, state in memory."""

    def __init__(
        self,
        pipeline: Pipeline,
        delivery: Delivery,
        targets: Mapping[str, ParquetTarget] | None = None,
        batch_rows: int = 100_000,
        sources: Mapping[str, Source] | None = None,
        source_directory: Path | None = None,
        tasks: int = 1,
        shedding_controller: SheddingController | None = None,
    ) -> None:
        self.pipeline = pipeline
        self.delivery = delivery
        self.targets = dict(targets or {})
        self.sources = sources or {
            s.name: open_source(s, source_directory / encode_name(s.name) if source_directory else None)
            for s in pipeline.streams
        }
        self.advance = OffsetPlanner(
            self.sources,
            batch_rows,
            tasks,
            shedding_controller=shedding_controller,
            requested_metrics=delivery.subscriptions.requested_metrics,
        )
        self.positions = self.advance.beginning()
        self.statuses: dict[str, SourceStatus] = {}
        self.states: dict[tuple[int, int], States] = {}
        self.batch = 0

    def run(self) -> None:
        """Until all sources have ended."""
        while not self.delivery.ended:
            if self.step() is None:
                time.sleep(0.01)

    def close(self) -> None:
        """Let go of the sources."""
        self.advance.close()

    def step(self) -> BatchReport | None:
        """One batch; None if there was nothing new."""
        began = time.monotonic()
        after = self.advance.next(self.positions)
        if after == self.positions:
            return None
        report = self._run_batch(plan_splits(self.positions, after), began)
        self.positions = after
        return report

    def _run_batch(self, tasks: list[InputSplit], began: float) -> BatchReport:
        boxes: list[StageOutput] = []
        statuses: list[SourceStatus] = []
        for number, piece in enumerate(tasks):
            write_result = open_result_writer(self.pipeline, self.targets, self.batch, f"0-{number}")
            box = StageOutput(self.pipeline.shards, number, write_result)
            statuses.append(ingest(self.pipeline, self.sources[piece.stream], piece, self.statuses, box))
            box.close()
            boxes.append(box)
        self.statuses = merge_statuses(statuses)
        for_driver = [message for box in boxes for message in box.for_driver]
        for stage in range(1, self.pipeline.stages + 1):
            inboxes = _exchange(boxes)
            boxes = []
            for shard in range(self.pipeline.shards):
                write_result = open_result_writer(self.pipeline, self.targets, self.batch, f"{stage}-{shard}")
                box = StageOutput(self.pipeline.shards, shard, write_result)
                states = self.states.get((stage, shard), {})
                messages_in = inboxes.get(shard, [])
                self.states[stage, shard] = run_stage(self.pipeline, stage, shard, messages_in, states, box)
                box.close()
                boxes.append(box)
                for_driver += box.for_driver
        report = self.delivery.deliver(self.batch, for_driver, began)
        self.batch += 1
        return report


def _exchange(boxes: list[StageOutput]) -> dict[int, list[Message]]:
    """What each bucket receives. Messages are encoded and decoded as on Spark, so that tests see the same bytes."""
    inboxes: dict[int, list[Message]] = {}
    for box in boxes:
        for shard, messages in box.by_shard.items():
            inboxes.setdefault(shard, []).extend(decode(encode(messages)))
    return inboxes
