"""Difference between the queries of a checkpoint and those that are to resume it, in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final

from strandline.connectors.sources.base import open_source
from strandline.core.durable import digest
from strandline.core.security.redaction import redact
from strandline.core.temporal import show_duration
from strandline.logical.catalog import BaseStream
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.physical.plan import Pipeline

_MAX_LINES: Final = 20  # of one query
_MAX_SOURCE: Final = 200  # characters of a source
_FRAGMENT: Final = re.compile(r"  (f\d+) → (.*)")
_EXCHANGE: Final = re.compile(r"( *)Exchange from (f\d+)\b")
_RESULT: Final = "result of "
_SINK_OF: Final = "the sink of "


def describe_declarations(pipeline: Pipeline, sinks: Mapping[str, str], functions: Sequence[str]) -> dict[str, str]:
    """What belongs to the identity of queries beside their plans, by name: streams, sinks and functions."""
    described: dict[str, str] = {}
    for stream in pipeline.streams:
        described |= _describe_stream(stream)
    described |= {f"{_SINK_OF}{query}": redact(str(identity)) for query, identity in sinks.items()}
    return described | {f"function {function.partition('(')[0]}": function for function in functions}


def _describe_stream(stream: BaseStream) -> dict[str, str]:
    order = [f"ORDERED BY {' UNTIL '.join(stream.time_columns)}"] if stream.time_columns else []
    order += [f"WITHIN {show_duration(stream.disorder_us)}"] if stream.disorder_us else []
    order += [f"IDLE AFTER {show_duration(stream.idle_after_us)}"] if stream.idle_after_us is not None else []
    order += [f"CHANGES IN {stream.changes.op_column}"] if stream.changes is not None else []
    source = redact(_plain(open_source(stream).identity()))
    if len(source) > _MAX_SOURCE:
        source = f"{source[:_MAX_SOURCE]}… ({len(source):,} characters, {digest(source.encode())[:8]})"
    return {
        f"the columns of {stream.name}": ", ".join(f"{name} {kind}" for name, kind in stream.columns),
        f"the source of {stream.name}": source,
        f"the time of {stream.name}": " ".join(order),
    }


def _plain(identity: Any) -> str:
    """The identity of a source on one line."""
    if isinstance(identity, Mapping):
        return ", ".join(f"{name}={_plain(value)}" for name, value in identity.items() if value)
    if isinstance(identity, str | bytes) or not isinstance(identity, Sequence):
        return str(identity)
    return f"({', '.join(map(_plain, identity))})"


def show_difference(
    recorded: Mapping[str, Any], queries: Sequence[str], pipeline: Pipeline, declarations: Mapping[str, str]
) -> str:
    """What has changed since a checkpoint was made: queries that came or went, and the lines that differ. `queries` are
    those that it has now; some may have been added or dropped since."""
    before, now = query_trees(str(recorded["plan"])), query_trees(show_pipeline(pipeline))
    before = {query: tree for query, tree in before.items() if query in queries}
    added = [query for query in queries if query not in before]
    lines = [f"{query} is in the checkpoint, and not in the script" for query in added if query not in now]
    for query in [*before, *(query for query in now if query not in before)]:
        if query not in now:
            lines.append(f"{query} is in the checkpoint, and not in the script")
        elif query not in queries:
            lines.append(f"{query} is in the script, and not in the checkpoint")
        elif query in before and (changed := list(_changed_lines(before[query], now[query]))):
            lines += [f"{query} has changed:", *(f"  {line}" for line in changed[:_MAX_LINES])]
            lines += [f"  … and {len(changed) - _MAX_LINES:,} more lines"] if len(changed) > _MAX_LINES else []
    known: Mapping[str, str] | None = recorded.get("declarations")
    for name in [] if known is None else sorted({*known, *declarations}):
        old, new = (known or {}).get(name), declarations.get(name)
        of_query = name.removeprefix(_SINK_OF)
        if old != new and (of_query == name or (of_query in before and of_query in now)):
            lines.append(f"{name} {'have' if name.startswith('the columns') else 'has'} changed:")
            lines += [f"  {sign} {text}" for sign, text in (("-", old), ("+", new)) if text]
    if not lines and pipeline.shards != recorded["shards"]:
        lines.append(f"it has {recorded['shards']} shards, and not {pipeline.shards}")
    return "\n".join(lines or ["The plans are the same; a stream, a sink or a function is declared otherwise."])


def query_trees(plan: str) -> dict[str, list[str]]:
    """The plan of each query as one tree: fragments that it reads are put in the place of their exchange, since their
    numbers change with other queries."""
    fragments: dict[str, list[str]] = {}
    results: dict[str, list[str]] = {}
    current: list[str] = []
    for line in plan.splitlines():
        if head := _FRAGMENT.fullmatch(line):
            current = fragments.setdefault(head[1], [head[2]])
            if head[2].startswith(_RESULT):
                results.setdefault(head[2].removeprefix(_RESULT), []).append(head[1])
        elif line.startswith("    "):
            current.append(line[4:])

    def inline(fragment: str, depth: int) -> Iterator[str]:
        for line in fragments.get(fragment, [])[1:]:
            if (exchange := _EXCHANGE.match(line)) and exchange[2] in fragments:
                below = depth + len(exchange[1])
                yield " " * below + fragments[exchange[2]][0]
                yield from inline(exchange[2], below + 2)
            else:
                yield " " * depth + line

    return {query: [line for name in names for line in inline(name, 0)] for query, names in results.items()}


def _changed_lines(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    """The lines that differ; how deep they are is no difference."""
    old, new = ([line.strip() for line in lines] for lines in (before, now))
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind != "equal":
            yield from (f"- {line}" for line in old[a:b])
            yield from (f"+ {line}" for line in new[c:d])
