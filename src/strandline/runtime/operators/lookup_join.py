"""The look-up join: elements meet the other side as it is when they begin."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from strandline.core.temporal import BEFORE_ALL, OPEN, Instant
from strandline.core.types import BIGINT, Column, Schema
from strandline.logical.expressions import ColumnRef, Expression
from strandline.logical.plan import LookupKind
from strandline.planner.physical.plan import BOTH_INTERVALS, InputForms, SideStructures
from strandline.runtime.kernels.batch import FROM, UNTIL, Batch, Times, frame_schema, gather, times
from strandline.runtime.kernels.changes import begun_and_ended
from strandline.runtime.operators.base import Operator, Stateful, Watermark
from strandline.runtime.operators.changes_hash_join import ChangesHashJoinOperator
from strandline.runtime.operators.changes_outer_hash_join import ElementNumbers
from strandline.runtime.operators.hash_join import HashJoinOperator
from strandline.runtime.operators.outer_hash_join import LEFT
from strandline.runtime.state.keyed_log import KeyedLog
from strandline.runtime.state.segments import State


class LookupJoinOperator(Operator):
    """Look-up join: later changes of the right do not concern an element of the left.

    Law    out = { x ∘ r, valid as x | x ∈ left, r ∈ snapshot(right, start(x)), condition(x, r) }, and so for each kind
    State  the right side, as the join of instants keeps it; of the left nothing, but for elements without an end their
           results, by the number of the element
    Emits  the results of an element when it begins; without an end if it has none, and again with it when it ends

        left     a [==========)
        right    r1 ====)[== r2 ==…
        (a,r1)     [==========)

    Inside, each element of the left is an instant, the one at which it begins: it meets what is valid then, in the same
    slice, and is not kept.
    """

    def __init__(
        self,
        kind: LookupKind,
        left_keys: Sequence[ColumnRef],
        right_keys: Sequence[ColumnRef],
        condition: Expression | None,
        left: Schema,
        right: Schema,
        mark: Column | None = None,
        structures: SideStructures = ("fifo", "fifo"),
        forms: InputForms = BOTH_INTERVALS,
    ) -> None:
        self.kind, self.mark = kind, mark
        self.watermark: Instant = BEFORE_ALL
        self.join = _join_of_instants(left_keys, right_keys, condition, left, right, structures, forms)
        self.numbering = ElementNumbers(left, LEFT, forms[0])
        added = {"inner": right, "left": right, "semi": (), "anti": (), "mark": () if mark is None else (mark,)}[kind]
        self.output = (*left, *added)
        self.shape = frame_schema(self.output)
        open_shape = {name: type_ for name, type_ in self.shape.items() if name != UNTIL}
        self.open = KeyedLog([LEFT], {**open_shape, LEFT: pl.Int64()})
        parts: dict[str, Stateful] = {"join": self.join, "numbers": self.numbering}
        self.logs = {f"{part}/{name}": log for part, inner in parts.items() for name, log in inner.logs.items()}
        self.logs["open"] = self.open

    def step(self, inputs: list[Batch], watermark: Watermark) -> Batch:
        before, until = self.watermark, max(watermark.time, self.watermark)
        self.watermark = until
        elements = self.numbering.step(inputs[0].frame, before)
        begun, ended = begun_and_ended(elements, before)
        instants = begun.with_columns(pl.Series(UNTIL, times(begun, FROM) + 1))
        pairs = self.join.step([Batch(instants), inputs[1]], watermark).frame
        found = self._found(begun, pairs)
        closed = self._close(ended, found)
        frames = [found, closed]
        if watermark.announces:
            waiting = self.open.all().filter(pl.col(FROM) < before)
            frames.append(waiting.with_columns(pl.lit(OPEN, pl.Int64).alias(UNTIL)))
        return Batch(pl.concat([frame.select(list(self.shape)) for frame in frames], rechunk=True))

    def _found(self, begun: pl.DataFrame, pairs: pl.DataFrame) -> pl.DataFrame:
        """The results of the elements that begin in the slice, with their numbers and whole intervals."""
        numbers = begun.get_column(LEFT).to_numpy()
        first = int(numbers[0]) if len(numbers) else 0  # they are numbered one after the other
        rows = pairs.get_column(LEFT).to_numpy() - first
        has_match = np.zeros(begun.height, np.bool_)
        has_match[rows] = True
        match self.kind:
            case "inner" | "left":
                ends: Times = times(begun, UNTIL)[rows]
                matched = pairs.with_columns(pl.Series(UNTIL, ends))
                if self.kind == "inner" or has_match.all():
                    return matched
                # Columns of the right are NULL.
                return pl.concat([matched, begun.filter(pl.Series(~has_match))], how="diagonal")
            case "semi":
                return begun.filter(pl.Series(has_match))
            case "anti":
                return begun.filter(pl.Series(~has_match))
            case "mark":
                assert self.mark is not None, "a mark has a column"
                return begun.with_columns(pl.Series(self.mark.id, has_match))

    def _close(self, ended: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
        """The results of the elements that end in the slice; those of elements without an end wait."""
        held = self.open.find(ended.select(LEFT))
        is_open = times(found, UNTIL) == OPEN
        self.open.replace(held, found.filter(pl.Series(is_open)).select(held.columns))
        if not held.height:
            return held.with_columns(pl.Series(UNTIL, [], pl.Int64))
        order = np.argsort(ended.get_column(LEFT).to_numpy())
        by_number = gather(ended, order)
        rows = np.searchsorted(by_number.get_column(LEFT).to_numpy(), held.get_column(LEFT).to_numpy())
        return held.with_columns(pl.Series(UNTIL, times(by_number, UNTIL)[rows]))

    def restore(self, state: State) -> None:
        super().restore(state)
        if self.join.watermark is not None:
            self.join.watermark = self.watermark
        self.numbering.next = state.numbers.get(LEFT, 0)

    def save(self) -> State:
        state = super().save()
        return State({**state.numbers, LEFT: self.numbering.next}, state.segments)


def _join_of_instants(
    left_keys: Sequence[ColumnRef],
    right_keys: Sequence[ColumnRef],
    condition: Expression | None,
    left: Schema,
    right: Schema,
    structures: SideStructures,
    forms: InputForms,
) -> HashJoinOperator:
    """The join of the elements as instants, with their numbers, and the right side in its form."""
    sides = (*left, Column(LEFT, LEFT, BIGINT)), right
    if forms[1] == "intervals":
        return HashJoinOperator(left_keys, right_keys, condition, *sides, structures)
    return ChangesHashJoinOperator(left_keys, right_keys, condition, *sides, ("intervals", "changes"), structures)
