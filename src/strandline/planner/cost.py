"""Cost model of physical operators: state in rows, and work per second in priced units.

State is what `State.rows()` counts. Work is counted as the operators do it: what is proportional to new rows, what
they read again in every batch, what merging segments of state rewrites. `planner/physical/operators.py` has the
operators, this file what is more than a line of them; `planner/prices.py` has the prices.

    row         a row that comes in            touched     a row of the state that a batch reads again
    result      a row that goes out            rewritten   a row that merging segments writes again
    byte        moved with either              probe       a row that probes a segment
    pair        of rows that are compared      step        an operator that runs for a batch in a shard
    computed    nanoseconds of expressions     sorted      a row that ends out of order
    covered     matches of an outer join       total, extreme, member    changes that an aggregate follows
    compared    results of a group             paired, pairing   rows and steps that find the ends of open elements
    signed, signing    rows and steps of an operator whose input has the form of changes
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from strandline.core.types import Schema, Type
from strandline.functions.aggregates import DISPERSIONS, needs_members
from strandline.functions.pair_aggregates import PAIR_AGGREGATES
from strandline.functions.subexpressions import own_cost
from strandline.logical.expressions import AggregateCall, Expression, children
from strandline.planner.cardinality import (
    LONGEST,
    StreamProfile,
    counted,
    groups_of,
    joined,
    unique,
    unmatched_fraction,
    windowed,
)
from strandline.planner.compaction import FEW_VALID, TRIAL_PAIRS, LogForecast, forecast_log
from strandline.planner.physical import plan as physical
from strandline.planner.physical.plan import Node, schema
from strandline.planner.physical_cardinality import PhysicalProfile, condition_of, matched_fragments

Work: TypeAlias = dict[str, float]

_BYTES: Final = {"BOOLEAN": 1, "INT": 4, "DATE": 4, "VARCHAR": 24, "DECIMAL": 16, "ARRAY": 48}
_TIMES: Final = 16  # from and until
HASH_BYTES: Final = 8
KEYED_SEGMENTS: Final = 4.0  # that a look-up in a keyed log goes through
_SUMS: Final = {"DOUBLE": 3.0, "DECIMAL": 2.0}  # running totals that an exact sum has


@dataclass(frozen=True, slots=True)
class OperatorCost:
    """State of an operator over all shards, and its work per second."""

    rows: float = 0.0
    bytes: float = 0.0
    work: Mapping[str, float] = field(default_factory=dict)


def width(columns: Schema) -> float:
    """Bytes of an element."""
    return sum(_width(column.type) for column in columns) + _TIMES


def _width(kind: Type) -> int:
    return _BYTES.get(kind.name, 8)


def expression_cost(expression: Expression) -> float:
    """Nanoseconds per row."""
    return own_cost(expression) + sum(expression_cost(child) for child in children(expression))


def _log(flow: PhysicalProfile, rate: float, length: float, batch: float, spread: bool | None = None) -> LogForecast:
    """A hashed log over all shards. Elements cut at the watermark are not kept; those without an end are cancelled by
    another row each."""
    if flow.form == "changes":
        rows = flow.uncut.valid * flow.copies
        return LogForecast(rows * 1.25, KEYED_SEGMENTS, flow.arriving * batch * math.log2(KEYED_SEGMENTS))
    if flow.cut:
        return LogForecast(0.0, 0.0, 0.0)
    spread = flow.stream.spread if spread is None else spread
    log = forecast_log(rate * batch * flow.copies / flow.shards, length / batch, spread)
    return LogForecast(log.rows * flow.shards, log.segments, log.rewritten * flow.shards)


def sort_by_end(flow: PhysicalProfile, batch: float, work: Work) -> None:
    """Cost of keeping elements in order of their end: those that end out of order are sorted, and runs merged."""
    if flow.stream.length >= LONGEST:
        return
    rate, length = flow.stream.rate * flow.copies, flow.stream.length
    log = forecast_log(rate * batch / flow.shards, 1.0 if flow.cut else length / batch, False)
    work["rewritten"] = log.rewritten * flow.shards / batch
    work["sorted"] = rate if flow.stream.spread else 0.0


def take_changes(inputs: Sequence[PhysicalProfile], work: Work) -> None:
    """Cost of following elements that come without an end: each is stored, found again and cancelled."""
    signed = [profile.arriving for profile in inputs if profile.form == "changes"]
    if signed:
        work |= {"signed": sum(signed), "signing": work["step"]}


def join_state(
    node: physical.JoinNode | physical.SharedWindowJoin,
    left: PhysicalProfile,
    right: PhysicalProfile,
    batch: float,
    work: Work,
) -> tuple[float, float]:
    """Rows kept on both sides and their mean size; adds the work of a join."""
    take_changes((left, right), work)
    logs = [_log(side, side.stream.rate, side.stream.length, batch) for side in (left, right)]
    rows = sum(log.rows for log in logs)
    widths = [width(schema(side)) + HASH_BYTES for side in (node.left, node.right)]
    work["probe"] = left.arriving * (logs[1].segments + 0.5) + right.arriving * (logs[0].segments + 0.5)
    work["rewritten"] = sum(log.rewritten for log in logs) / batch
    # Rows of a batch are held against all that the other side holds or brings, also against those that have ended.
    held = [log.rows / side.copies for log, side in zip(logs, (left, right), strict=True)]
    matches = joined(condition_of(node, keys_only=True), left.stream, right.stream)
    all_pairs = joined(None, left.stream, right.stream)
    share = matches.rate / all_pairs.rate if all_pairs.rate else 0.0
    at_once = right.stream.rate * batch / left.shards
    by_key = share * (left.stream.rate * (held[1] + at_once) + right.stream.rate * held[0])
    by_time = matches.rate * FEW_VALID < by_key and by_key * batch > TRIAL_PAIRS * left.shards
    work["pair"] = matches.rate if by_time else by_key
    if node.condition is not None:
        work["computed"] = matches.rate * expression_cost(node.condition)
        work["result"] = matches.rate
        work["byte"] += matches.rate * width(schema(node))
    size = sum(log.rows * w for log, w in zip(logs, widths, strict=True)) / rows if rows else 0.0
    return rows, size


def match_state(
    node: physical.OuterHashJoin, left: PhysicalProfile, right: PhysicalProfile, batch: float, work: Work
) -> tuple[float, float]:
    rows, size = join_state(node, left, right, batch, work)
    pairs = joined(condition_of(node), left.stream, right.stream)
    extra = 0.0
    if node.kind in ("semi", "mark"):
        fresh, matches = matched_fragments(pairs, left.stream), _mean_matches(pairs, left)
        # The last of the earlier matches, and the element itself, stay for most of its time.
        stays = left.stream.length * matches / (matches + 1)
        extra += _log(left, fresh, stays, batch, False).rows
        if not left.cut:
            extra += fresh / 2 * left.stream.length * max(matches - 1, 0.0) / (matches + 1)  # the second waits
        work["covered"] = pairs.rate
    sides = {"semi": (), "full": (left, right)}.get(node.kind, (left,))
    for side in sides:
        alone, matches = unmatched_fraction(pairs, side.stream), _mean_matches(pairs, side)
        covered_fraction = 1 + math.expm1(-matches) / matches if matches > 1e-9 else 0.0
        covers = _log(side, pairs.rate / 2 * covered_fraction, pairs.length, batch, True).rows
        extra += side.stream.valid * (alone + covered_fraction) + covers
        kept = side.stream.valid * alone
        touched = kept / batch if node.form == "intervals" else keyed(side.stream.rate + pairs.rate, kept, batch, work)
        work["touched"] = work.get("touched", 0.0) + touched
        work["covered"] = work.get("covered", 0.0) + pairs.rate
    total = rows + extra
    return total, (rows * size + extra * (width(schema(node.left)) + 2 * HASH_BYTES)) / total if total else 0.0


def _mean_matches(pairs: StreamProfile, side: PhysicalProfile) -> float:
    alone = unmatched_fraction(pairs, side.stream)
    return -math.log(alone) if alone > 0 else 700.0


def _harmonic(number: float) -> float:
    """1 + 1/2 + … up to about a number."""
    return math.log1p(number) + 0.577 * min(1.0, number)


def distinct_state(source: Node, first: PhysicalProfile, batch: float, work: Work) -> float:
    """An entry per payload and batch in which it comes, until they are folded; and the payloads that are due. Over
    changes, a number per payload."""
    stream = first.stream
    columns = tuple(c.id for c in schema(source))
    payloads = max(groups_of(stream, columns), 1.0)
    if first.form == "changes":
        take_changes((first,), work)
        there = counted(first.uncut, columns).valid * first.copies
        work["touched"] = keyed(first.arriving, there, batch, work)
        return there
    changed = payloads * -math.expm1(-stream.rate * batch / payloads)  # per batch
    log = _log(first, changed / batch, stream.length * (2 if stream.spread else 1), batch, False)
    sent = unique(stream, columns)
    valid = sent.valid * first.copies
    batches = valid // changed + 1 if changed else 1.0  # until most entries are replaced, and all are folded
    rows = min(log.rows, valid + (batches - 1) * changed / 2)
    work["probe"] = first.arriving * (log.segments + 0.5)
    work["rewritten"] = min(log.rewritten, 2 * changed) / batch
    work["pair"] = stream.rate * rows / payloads
    if first.cut or stream.length >= LONGEST:
        return 0.0 if first.cut else valid
    expected = stream.rate / payloads * sent.length  # duplicates while an element that was sent is valid
    return rows + valid * (1 + math.expm1(-expected) / expected) if expected > 1e-9 else rows


def keyed(changes: float, rows: float, batch: float, work: Work) -> float:
    """Rows per second of a keyed log that are found and replaced: those that change, each once per batch."""
    touched = min(changes, rows / batch)
    work["probe"] = work.get("probe", 0.0) + touched * KEYED_SEGMENTS
    return touched


def aggregate_state(
    node: physical.IncrementalAggregate, first: PhysicalProfile, batch: float, work: Work
) -> tuple[float, float]:
    stream = first.stream
    groups = groups_of(stream, node.keys)
    per_group = stream.valid / groups
    alive = groups * -math.expm1(-per_group) if node.keys else 1.0
    calls = [call for _, call in node.aggregates]
    extremes = {(c.function, c.argument.id) for c in calls if c.argument and c.function in ("min", "max")}
    members = [call for call in calls if needs_members(call)]
    ends = stream.length < LONGEST
    staying = stream.valid if ends or members else 0.0
    if node.panes:
        staying = min(staying, groups * panes_of(per_group, first.uncut.length / stream.granule))
    candidates = alive * _harmonic(max(per_group, 1e-9)) if ends else alive
    changes = first.arriving * (2 if ends else 1)
    touched = alive / batch if node.form == "intervals" else keyed(changes, alive, batch, work)
    events = changes + touched
    work["touched"] = touched
    if node.coalesces:
        work["compared"] = events
    sort_by_end(first, batch, work)
    if extremes or members:
        take_changes((first,), work)
    work["total"] = events * sum(_totals(call) for call in calls)
    work["extreme"] = (first.arriving + candidates / alive * touched) * len(extremes) if alive else 0.0
    work["member"] = (first.arriving + staying / batch) * len(members)
    rows = staying + alive + candidates * len(extremes)
    widths = {c.id: _width(c.type) for c in schema(node.source)}
    read = {*node.keys, *(ref.id for call in calls for ref in call.columns)}
    valid_width = sum(widths[column_id] for column_id in read) + _TIMES / 2
    total_width = sum(widths[key] for key in node.keys) + 8 * (1 + sum(_totals(call) for call in calls))
    size = staying * valid_width + alive * total_width + candidates * len(extremes) * (valid_width + _TIMES / 2)
    return rows, size / rows if rows else 0.0


def over_state(
    node: physical.OverRange | physical.OverRows, first: PhysicalProfile, batch: float, work: Work
) -> tuple[float, float]:
    """State of window functions: that of the sliding aggregate, or the last rows of each partition."""
    if isinstance(node, physical.OverRange):
        held = windowed(first.stream, None if node.start_us is None else node.start_us + 1, 1)
        sliding = physical.IncrementalAggregate(node.partition, node.aggregates, node.source, "changes")
        return aggregate_state(sliding, replace(first, stream=held), batch, work)
    back = max((abs(call.frame.start or 0) if call.frame.unit == "rows" else 1 for _, call in node.calls), default=1)
    per_part = max(1, back, *(call.offset for _, call in node.calls)) + node.waits
    rows = 0.0 if node.per_instant else groups_of(first.stream, node.partition) * per_part
    work["touched"] = keyed(first.arriving * per_part, rows, batch, work)
    work["total"] = first.arriving * len(node.calls)
    return rows, width(schema(node.source)) + HASH_BYTES


def panes_of(elements: float, granules: float) -> float:
    """(22.30), and (22.35) for the elements of a group: of the granules of a window, those in which elements end."""
    if granules <= 1:
        return min(elements, 1.0)
    return granules * -math.expm1(elements * math.log1p(-1 / granules))


def _totals(call: AggregateCall) -> float:
    """Number of running totals of an aggregate, apart from the number of rows."""
    if call.argument is None or needs_members(call) or call.function in ("min", "max"):
        return 0.0
    sums = _SUMS.get(call.argument.type.name, 1.0)
    if call.function in DISPERSIONS:
        return 3 * sums
    if call.function in PAIR_AGGREGATES:
        return 9 * _SUMS["DOUBLE"]
    return sums if call.function in ("sum", "avg") else 1.0
