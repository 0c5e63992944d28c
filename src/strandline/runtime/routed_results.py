"""Results of queries over one shared window join, as one message: the pairs once, and where each query has its own.

The results of a hundred uses would be a hundred tables whose rows are the same pairs, copied as often as uses have
them. A task sends the pairs once, with the times of both rows; the driver cuts the tables of the queries out of them,
without a copy but for the ends of the elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from strandline.core.temporal import BEFORE_ALL, FOREVER
from strandline.core.types import Schema
from strandline.runtime.exchange import DRIVER, Message
from strandline.runtime.kernels.batch import Times
from strandline.runtime.operators.routed_pairs import PairsOfUse, mark_pairs, take_parts, valid_in
from strandline.runtime.result import INSTANT, result_schema, to_array, to_instants

_LEFT: Final = "@left"
_RIGHT: Final = "@right"
_WORD: Final = "@word"
_Parts: TypeAlias = tuple[tuple[int, int], ...]  # where each begins and ends
_Use: TypeAlias = tuple[_Parts, tuple[int, int], int, int, tuple[str, ...], tuple[str, ...]]


def bundle(results: Mapping[str, PairsOfUse], columns: Mapping[str, Schema]) -> Iterator[Message]:
    """Messages with the results of queries, one for each join that they read."""
    by_join: dict[int, dict[str, PairsOfUse]] = {}
    for query, pairs in results.items():
        by_join.setdefault(id(pairs.source), {})[query] = pairs
    for of_join in by_join.values():
        yield _bundle_join(of_join, columns)


def _bundle_join(results: Mapping[str, PairsOfUse], columns: Mapping[str, Schema]) -> Message:
    uses: dict[_Use, list[str]] = {}
    fields: dict[str, pa.DataType] = {}
    for query, pairs in results.items():
        by_id = dict(pairs.outputs)
        named = columns[query]
        sources = tuple(by_id[column.id] for column in named)
        schema = result_schema(named)
        fields.update({source: schema.field(number).type for number, source in enumerate(sources)})
        parts = tuple((part.start, part.stop) for part in pairs.parts)
        use = parts, pairs.bounds, pairs.bit, pairs.since, sources, tuple(schema.names)
        uses.setdefault(use, []).append(query)
    any_pairs = next(iter(results.values()))
    frame, routing = any_pairs.source.frame, any_pairs.source.routing
    arrays = [to_array(frame.get_column(name), kind) for name, kind in fields.items()]
    names = [*fields, _LEFT, _RIGHT]
    arrays += [pa.array(routing.left_times), pa.array(routing.right_times)]
    if routing.words is not None:
        names.append(_WORD)
        arrays.append(pa.array(routing.words))
    facts = {"uses": [[queries, *use] for use, queries in uses.items()]}
    return Message("routed", "", DRIVER, facts=facts, table=pa.Table.from_arrays(arrays, names=names))


@lru_cache(maxsize=4096)
def _name(names: tuple[str, ...], kinds: tuple[pa.DataType, ...]) -> pa.Schema:
    fields = [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
    return pa.schema([*fields[:-2], fields[-2].with_nullable(False), fields[-1]])


def unbundle(message: Message) -> Iterator[tuple[str, pa.Table]]:
    """The results of the queries, as they would have come one by one; those without rows are left out."""
    assert message.table is not None and message.table.num_rows, "only joins with pairs send them"
    columns = {name: message.table.column(name).combine_chunks() for name in message.table.column_names}
    arrays = {name: part.chunk(0) if isinstance(part, pa.ChunkedArray) else part for name, part in columns.items()}
    left, right = arrays[_LEFT].to_numpy(), arrays[_RIGHT].to_numpy()
    starts = np.maximum(left, right)
    begin = to_instants(starts)
    words = arrays[_WORD].to_numpy() if _WORD in arrays else None
    ends = _Ends(left, right)
    for queries, bounds, over, bit, since, sources, names in message.facts["uses"]:
        parts = tuple(slice(*part) for part in bounds)
        columns_of_use = [_join([arrays[source][part] for part in parts]) for source in sources]
        columns_of_use.append(_join([begin[part] for part in parts]))
        columns_of_use.append(_join([ends.within(part, *over) for part in parts]))
        if bit or since > BEFORE_ALL:
            own = None if words is None else take_parts(words, parts)
            marked = mark_pairs(take_parts(left, parts), take_parts(right, parts), own, bit, since)
            assert marked is not None, "some may not count"
            kept = pa.array(np.flatnonzero(marked))
            columns_of_use = [column.take(kept) for column in columns_of_use]
        if len(columns_of_use[-1]):
            schema = _name(tuple(names), tuple(column.type for column in columns_of_use))
            table = pa.Table.from_arrays(columns_of_use, schema=schema)
            for query in queries:
                yield query, table


def _join(parts: list[pa.Array]) -> pa.Array | pa.ChunkedArray:
    """Parts of a column, without a copy."""
    return parts[0] if len(parts) == 1 else pa.chunked_array(parts)


class _Ends:
    """The ends of pairs in windows that do not slide."""

    def __init__(self, left: Times, right: Times) -> None:
        self._left, self._right, self._older = left, right, np.minimum(left, right)
        self._latest = int(self._older.max())

    def within(self, part: slice, over_left: int, over_right: int) -> pa.Array:
        """The ends of a part of the pairs, in windows that reach so far."""
        if over_left == over_right and self._latest <= FOREVER - 1 - over_left:
            return pa.array(self._older[part] + over_left).view(INSTANT)
        return to_instants(valid_in(self._left[part], self._right[part], over_left, over_right)[1])
