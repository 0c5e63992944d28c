"""Adding queries to a graph that runs, and dropping them, between two batches.

    add     plan ─ T ─ sink and sources are opened ─ the next version is stored ─ the sink is prepared
    drop    the next version is stored ─ the sink is closed, and sources that nothing else reads

Once its version is stored a query is accepted: a restart goes on with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from strandline.connectors.sinks import Sink
from strandline.connectors.sources.base import Source, open_source
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.udf import user_functions
from strandline.planner.physical.living import extend
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.chain import source_directory
from strandline.runtime.checkpoint.versions import GraphQuery, GraphVersion
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.watermark import SourceStatus


@dataclass(frozen=True, slots=True)
class Addition:
    """A query that is to be added: its own plan, what operators must have in common with it beside their structure to
    be shared, and where its results go."""

    query: GraphQuery
    part: Pipeline
    scope: str
    sink: Sink


def add_query(pipeline: RunningPipeline, addition: Addition) -> None:
    """Add a query that begins now: its result is over the rows after everything that its streams have brought."""
    graph, query = pipeline.graph, addition.query
    with graph.changing() as version:
        since = starting_instant(pipeline.metrics.statuses, addition.part.queries[0].streams)
        number = version.next_query
        extended = extend(
            version.pipeline,
            addition.part,
            addition.scope,
            since=since,
            number=number,
            first_fragment=version.next_fragment,
        )
        batch = pipeline.metrics.last_batch + 1
        added = replace(query, number=number, began=version.number + 1, batch=batch)
        following = version.following(extended, (*version.queries, added), batch)
        functions = {**pipeline.declared.functions, **user_functions(addition.part)}
        streams = {**pipeline.declared.streams, **{stream.name: stream for stream in addition.part.streams}}
        declared = replace(pipeline.declared, functions=functions, streams=streams)
        writer = pipeline.open_writer(query.name, addition.sink, extended)
        opened: list[Source] = []
        try:
            opened += _open_sources(pipeline, following)
            graph.publish(following)
        except BaseException:
            for source in opened:
                pipeline.remove_source(source.stream.name)
            writer.close()
            raise
        pipeline.declared = declared
        pipeline.attach(query.name, addition.sink, writer)
        try:
            pipeline.prepare_writer(query.name)
            pipeline.write_places()
            pipeline.rewire()
        except BaseException:
            pipeline.drop(query.name)
            raise


def drop_query(pipeline: RunningPipeline, name: str) -> None:
    """Drop a query after the batch that runs; the others go on."""
    with pipeline.graph.changing() as version:
        if name in {query.name for query in version.queries}:  # it may have failed meanwhile
            pipeline.drop(name)


def stop_query(pipeline: RunningPipeline, number: int) -> None:
    """End a query, and the pipeline with the last of them. One that is called while a batch is committed, by a sink,
    ends the query after that batch."""
    names = [query.name for query in pipeline.graph.version.queries if query.number == number]
    if not names:
        return
    if len(pipeline.graph.version.queries) == 1 or pipeline.driver is None or pipeline.is_over:
        pipeline.stop()
    elif pipeline.is_committing:
        pipeline.stopping.add(names[0])
    else:
        pipeline.writers[names[0]].interrupt()
        drop_query(pipeline, names[0])


def drop_stopped(pipeline: RunningPipeline) -> None:
    """Drop the queries that were stopped while a batch was committed."""
    names, pipeline.stopping = pipeline.stopping, set()
    for name in sorted(names):
        drop_query(pipeline, name)


def starting_instant(statuses: Mapping[str, SourceStatus], streams: frozenset[str]) -> Instant:
    """The first instant that nothing before has reached: no row that was read is there or later, and none from there on
    is late because of what was read. Before all, if nothing was."""
    known = [statuses[name] for name in streams if name in statuses]
    read = [status.high + 1 for status in known if status.high > BEFORE_ALL]
    promised = [status.watermark for status in known if status.watermark < FOREVER]
    return max([*read, *promised], default=BEFORE_ALL)


def _open_sources(pipeline: RunningPipeline, version: GraphVersion) -> list[Source]:
    """Open the sources that the version before did not read; they begin at the beginning."""
    assert pipeline.planner is not None, "it runs"
    opened: list[Source] = []
    try:
        for stream in version.pipeline.streams:
            if stream.name not in pipeline.planner.sources:
                directory = source_directory(pipeline.checkpoint, stream.name) if pipeline.chain is not None else None
                source = open_source(stream, directory)
                source.resume(0)
                pipeline.planner.add_source(source)
                opened.append(source)
    except BaseException:
        for source in opened:
            pipeline.remove_source(source.stream.name)
        raise
    return opened
