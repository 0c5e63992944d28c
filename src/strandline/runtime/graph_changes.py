"""Adding queries to a graph that runs, and dropping them, between two batches.

    add       plan ─ T ─ sink and sources are opened ─ the next version is stored ─ the sink is prepared
    drop      the next version is stored ─ the sink is closed, and sources that nothing else reads
    replace   some are dropped and others added, before anything runs: one version, all of it or nothing

Once its version is stored a query is accepted: a restart goes on with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from strandline.connectors.sinks import Sink
from strandline.connectors.sources.base import Source, open_source
from strandline.core.errors import QueryError
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.udf import user_functions
from strandline.planner.physical.living import extend, shrink
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.chain import source_directory
from strandline.runtime.checkpoint.replay import replayed_until
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


def replace_queries(pipeline: RunningPipeline, dropped: Collection[str], additions: Sequence[Addition]) -> None:
    """Drop queries of a graph that does not run yet, and add others, with one version; a query may take the place of
    one of its name. Streams that only dropped queries have read are gone, and begin again where they are read now.
    """
    assert pipeline.planner is None, "no batch runs"
    version, batch = pipeline.graph.version, pipeline.metrics.last_batch + 1
    remaining = version.pipeline
    for query in version.queries:
        if query.name in dropped:
            remaining = shrink(remaining, query.name)
    queries = [query for query in version.queries if query.name not in dropped]
    known = {stream.name for stream in remaining.streams}
    statuses = {name: status for name, status in pipeline.metrics.statuses.items() if name in known}
    extended, next_fragment = remaining, version.next_fragment
    for number, addition in enumerate(additions, version.next_query):
        extended = extend(
            extended,
            addition.part,
            addition.scope,
            since=starting_instant(statuses, addition.part.queries[0].streams),
            number=number,
            first_fragment=next_fragment,
        )
        next_fragment = max([next_fragment, *(int(fragment.id[1:]) + 1 for fragment in extended.fragments)])
        queries.append(replace(addition.query, number=number, began=version.number + 1, batch=batch))
    added = {addition.query.name for addition in additions}
    failed = [failed for failed in version.failed if failed.query.name not in added | set(dropped)]
    following = version.following(extended, queries, batch, remaining=remaining, failed=failed)
    functions = [user_functions(addition.part) for addition in additions]
    for each in functions:
        pipeline.declared = replace(pipeline.declared, functions={**pipeline.declared.functions, **each})
    writers = [
        pipeline.open_writer(query.name, addition.sink, extended, replaces=query.replaces)
        for query, addition in zip(queries[-len(additions) :] if additions else [], additions, strict=True)
    ]
    pipeline.graph.publish(following)
    pipeline.metrics.adopt(remaining)
    for addition, writer in zip(additions, writers, strict=True):
        pipeline.attach(addition.query.name, addition.sink, writer)
    pipeline.adopt_version()
    pipeline.write_places()
    for addition in additions:
        pipeline.prepare_writer(addition.query.name)


def finish_batches(pipeline: RunningPipeline) -> None:
    """Wait until the batches are over that were planned before a restart, and until the engine knows that they are."""
    assert pipeline.chain is not None and pipeline.driver is not None, "it runs, with a checkpoint"
    last = pipeline.chain.last_offset
    until = max(-1 if last is None else last.batch, replayed_until(pipeline.checkpoint))
    while pipeline.last_batch < until and not pipeline.is_over:
        pipeline.driver.await_end(0.02)
    pipeline.driver.await_end(0)  # which raises what has failed
    try:
        with pipeline.graph.changing():
            pipeline.driver.settle()
    except QueryError:
        if not pipeline.ended:
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
