"""Adding queries to a graph that runs, and dropping them, between two batches.

    add       plan ─ T, or own readers ─ sink and sources are opened ─ the next version is stored ─ the sink is prepared
    drop      the next version is stored ─ the sink is closed, and sources that nothing else reads
    replace   some are dropped and others added, before anything runs: one version, all of it or nothing

Once its version is stored a query is accepted: a restart goes on with it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from strandline.connectors.sinks import Sink
from strandline.connectors.sources.base import open_source
from strandline.connectors.tables.source import TableSource
from strandline.core.errors import QueryError
from strandline.core.temporal import BEFORE_ALL, FOREVER, Instant
from strandline.logical.catalog import BaseStream
from strandline.logical.udf import user_functions
from strandline.planner.physical.living import extend, rename_streams, shrink
from strandline.planner.physical.plan import Pipeline
from strandline.planner.physical.take_over import take_over
from strandline.planner.planner import PlannedQuery
from strandline.planner.sharing import choose_beside
from strandline.runtime.catch_up import has_shared_log, log_of, reader_of, table_reader_of
from strandline.runtime.checkpoint.chain import source_directory
from strandline.runtime.checkpoint.replay import replayed_until
from strandline.runtime.checkpoint.versions import GraphQuery, GraphVersion, declarations
from strandline.runtime.pipeline import RunningPipeline
from strandline.runtime.watermark import SourceStatus


@dataclass(frozen=True, slots=True)
class Addition:
    """A query that is to be added: its own plan, what operators must have in common with it beside their structure to
    be shared, and where its results go. `query` says whether it begins now or at the beginning. `plans` are those among
    which that is chosen which costs least beside what runs."""

    query: GraphQuery
    part: Pipeline
    scope: str
    sink: Sink
    plans: tuple[PlannedQuery, ...] = ()


def add_query(pipeline: RunningPipeline, addition: Addition, patience: float | None = None) -> None:
    """Add a query, if the batch that runs ends within `patience` seconds. Of one that begins now, the result is over
    the rows after everything that its streams have brought; one from the beginning reads again what others have read
    of them."""
    graph, query = pipeline.graph, addition.query
    with graph.changing(patience) as version:
        number, running = version.next_query, version.pipeline
        addition, since, scope = plan_beside(addition, running, pipeline.metrics.statuses)
        part = begin_query(addition, running, version.number + 1)
        first_fragment = version.next_fragment
        extended, moved = extend(running, part, scope, since=since, number=number, first_fragment=first_fragment)
        batch = pipeline.metrics.last_batch + 1
        added = replace(query, number=number, began=version.number + 1, batch=batch, scope=addition.scope)
        following = version.following(extended, (*version.queries, added), batch, moved)
        functions = {**pipeline.declared.functions, **user_functions(addition.part)}
        streams = {**pipeline.declared.streams, **declarations(addition.part.streams)}
        declared = replace(pipeline.declared, functions=functions, streams=streams)
        writer = pipeline.open_writer(query.name, addition.sink, extended)
        opened: list[str] = []
        try:
            opened += _open_sources(pipeline, following)
            graph.publish(following)
        except BaseException:
            for name in opened:
                pipeline.remove_source(name)
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
    remaining, next_fragment = version.pipeline, version.next_fragment
    for query in version.queries:
        if query.name in dropped:
            remaining = shrink(remaining, query.name, next_fragment)
            next_fragment = _next_fragment(remaining, next_fragment)
    queries = [query for query in version.queries if query.name not in dropped]
    known = {stream.name for stream in remaining.streams}
    statuses = {name: status for name, status in pipeline.metrics.statuses.items() if name in known}
    extended, moved = remaining, dict[str, str]()
    for number, addition in enumerate(additions, version.next_query):
        addition, since, scope = plan_beside(addition, extended, statuses)
        part = begin_query(addition, remaining, version.number + 1)
        extended, changed = extend(extended, part, scope, since=since, number=number, first_fragment=next_fragment)
        moved |= changed
        next_fragment = _next_fragment(extended, next_fragment)
        began = version.number + 1
        queries.append(replace(addition.query, number=number, began=began, batch=batch, scope=addition.scope))
    added = {addition.query.name for addition in additions}
    failed = [failed for failed in version.failed if failed.query.name not in added | set(dropped)]
    following = version.following(extended, queries, batch, moved, remaining=remaining, failed=failed)
    for addition in additions:
        functions = {**pipeline.declared.functions, **user_functions(addition.part)}
        streams = {**pipeline.declared.streams, **declarations(addition.part.streams)}
        pipeline.declared = replace(pipeline.declared, functions=functions, streams=streams)
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


def _next_fragment(pipeline: Pipeline, given: int) -> int:
    """The next free number of a fragment."""
    return max([given, *(int(fragment.id[1:]) + 1 for fragment in pipeline.fragments)])


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


def change_after_batch(pipeline: RunningPipeline) -> None:
    """What changes because of the batch that is over: queries that were stopped while it was committed go, and so do
    those whose streams have ended, if the others go on; those that have caught up read the streams themselves."""
    names, pipeline.stopping = pipeline.stopping, set()
    for name in sorted(names):
        drop_query(pipeline, name)
    # A checkpoint that stays keeps its queries: the same statements find what they have started.
    if pipeline.is_temporary and not pipeline.graph.is_over:
        _drop_complete(pipeline)
    if not pipeline.graph.is_over:
        _take_over_level(pipeline)


def _take_over_level(pipeline: RunningPipeline) -> None:
    """Let queries that have caught up read the streams themselves."""
    readers = [stream for stream in pipeline.physical.streams if stream.follows]
    for query in pipeline.graph.version.queries if readers else ():
        if query.start != "beginning" or not _has_caught_up(pipeline, query.name, readers):
            continue
        with pipeline.graph.changing() as version:
            number, first = query.number, version.next_fragment
            taken = take_over(version.pipeline, query.name, query.scope, number=number, first_fragment=first)
            batch = pipeline.metrics.last_batch + 1
            pipeline.graph.publish(version.following(taken.pipeline, version.queries, batch, taken.moved))
            for stream in version.pipeline.streams:
                if stream not in taken.pipeline.streams:
                    pipeline.remove_source(stream.name)
            pipeline.adopt_version()
            pipeline.write_places()


def _has_caught_up(pipeline: RunningPipeline, query: str, readers: Sequence[BaseStream]) -> bool:
    """Whether a query may read the streams themselves: all of its readers are where the others are, and know the same
    of what they have read. Where streams may be idle they may not, since others may have gone on beyond a row."""
    planner, statuses = pipeline.planner, pipeline.metrics.statuses
    streams = pipeline.metrics.streams_of(query)
    own = [stream for stream in readers if stream.name in streams]
    return bool(own and not pipeline.metrics.has_work) and all(
        planner is not None
        and planner.is_level(stream.name)
        and stream.idle_after_us is None
        and _has_read_the_same(statuses.get(stream.name), statuses.get(stream.reader_of))
        for stream in own
    )


def _has_read_the_same(one: SourceStatus | None, two: SourceStatus | None) -> bool:
    if one is None or two is None:
        return False
    facts = [(s.watermark, s.low, s.high, s.ended, s.rows, s.late, s.rejected, s.partitions) for s in (one, two)]
    return facts[0] == facts[1]


def _drop_complete(pipeline: RunningPipeline) -> None:
    """Drop the queries that have their whole result; the last ones end with the pipeline."""
    if not pipeline.writers or not any(status.ended for status in pipeline.metrics.statuses.values()):
        return  # no sink takes results, or no stream has ended
    queries = pipeline.graph.version.queries
    complete = [query.name for query in queries if pipeline.is_complete(query.name)]
    if len(complete) == len(queries):
        return
    for name in complete:
        with pipeline.graph.changing():
            pipeline.drop(name, is_whole=True)


def plan_beside(
    addition: Addition, running: Pipeline, statuses: Mapping[str, SourceStatus]
) -> tuple[Addition, Instant, str]:
    """The addition with the plan that costs least beside what runs, from when on it has rows, and what is shared only
    with equal ones. One from the beginning shares operators when it has caught up."""
    since, scope = BEFORE_ALL, addition.scope
    if addition.query.start == "now":
        since = starting_instant(statuses, {s.name for s in addition.part.streams if s.table is None})
        scope = f"{scope} since {since}"
    if addition.plans:
        addition = replace(addition, part=choose_beside(addition.plans, running, scope, since).physical)
    return addition, since, scope


def preview(pipeline: RunningPipeline, addition: Addition) -> Pipeline:
    """A pipeline that runs with a query that might be added, as it would be when that has caught up."""
    version = pipeline.graph.version
    addition, since, scope = plan_beside(addition, version.pipeline, pipeline.metrics.statuses)
    part = read_tables_apart(addition.part, version.number + 1)
    number, first_fragment = version.next_query, version.next_fragment
    return extend(version.pipeline, part, scope, since=since, number=number, first_fragment=first_fragment)[0]


def begin_query(addition: Addition, running: Pipeline, version: int) -> Pipeline:
    """The plan of a query that a version adds, with readers of its own where it does not read with the others."""
    part = read_tables_apart(addition.part, version)
    return read_again(running, part) if addition.query.start == "beginning" else part


def read_tables_apart(part: Pipeline, version: int) -> Pipeline:
    """The plan of a query with readers for its tables that begin with a version: operators that run have the content of
    a table already, and what counts as its past is another for each query."""
    readers = {s.name: table_reader_of(s, version, _log_end(s)) for s in part.streams if s.table is not None}
    streams = [readers.get(stream.name, stream) for stream in part.streams]
    return rename_streams(part, streams, {name: reader.name for name, reader in readers.items()})


def read_again(running: Pipeline, part: Pipeline) -> Pipeline:
    """The plan of a query with readers of its own for the streams that are read already."""
    known, query = {stream.name for stream in running.streams if stream.table is None}, part.queries[0].name
    readers = {stream.name: reader_of(stream, query) for stream in part.streams if stream.name in known}
    streams = [readers.get(stream.name, stream) for stream in part.streams]
    return rename_streams(part, streams, {name: reader.name for name, reader in readers.items()})


def _log_end(table: BaseStream) -> int:
    """Where the log of a table ends now."""
    source = open_source(table)
    assert isinstance(source, TableSource), "it is the input of a table"
    return source.log_end()


def starting_instant(statuses: Mapping[str, SourceStatus], streams: Collection[str]) -> Instant:
    """The first instant that nothing before has reached: no row that was read is there or later, and none from there on
    is late because of what was read. Before all, if nothing was."""
    known = [statuses[name] for name in streams if name in statuses]
    read = [status.high + 1 for status in known if status.high > BEFORE_ALL]
    promised = [status.watermark for status in known if status.watermark < FOREVER]
    return max([*read, *promised], default=BEFORE_ALL)


def _open_sources(pipeline: RunningPipeline, version: GraphVersion) -> list[str]:
    """Open the sources that the version before did not read; they begin at the beginning. Returns their names."""
    assert pipeline.planner is not None, "it runs"
    opened: list[str] = []
    try:
        for stream in version.pipeline.streams:
            if stream.name in pipeline.planner.sources:
                continue
            if has_shared_log(stream):
                pipeline.planner.add_reader(stream.name, log_of(stream))
                opened.append(stream.name)
            else:
                directory = source_directory(pipeline.checkpoint, stream.name) if pipeline.chain is not None else None
                source = open_source(stream, directory)
                source.resume(0)
                pipeline.planner.add_source(source)
                opened.append(stream.name)
    except BaseException:
        for name in opened:
            pipeline.remove_source(name)
        raise
    return opened
