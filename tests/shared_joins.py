"""Shared window joins for tests of the operator: what each use has by definition, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from strandline.core.types import BIGINT, VARCHAR, Column
from strandline.logical.expressions import Call, ColumnRef, Expression
from strandline.planner.physical.plan import POINTS, WindowExtent, WindowUse
from strandline.runtime.kernels.intervals import window
from strandline.runtime.operators.shared_window_join import SharedWindowJoinOperator
from support import BOOLEAN, Elements, Payload

LEFT = (Column("l.k", "k", VARCHAR), Column("l.v", "v", BIGINT), Column("l.word", "word", BIGINT))
RIGHT = (Column("r.k", "k", VARCHAR), Column("r.v", "v", BIGINT), Column("r.word", "word", BIGINT))
KEYS = [ColumnRef("l.k", VARCHAR)], [ColumnRef("r.k", VARCHAR)]
LESS = Call("<", (ColumnRef("l.v", BIGINT), ColumnRef("r.v", BIGINT)), BOOLEAN)
OUTPUTS = tuple((Column(f"out {c.id}", c.name, c.type), ColumnRef(c.id, c.type)) for c in (*LEFT[:2], *RIGHT[:2]))
WORDS = ColumnRef("l.word", BIGINT), ColumnRef("r.word", BIGINT)


def number(row: Payload, place: int) -> int:
    value = row[place]
    assert isinstance(value, int)
    return value


@dataclass(frozen=True)
class Join:
    """A shared join: its uses, whether it has keys and words, and a condition."""

    uses: tuple[WindowUse, ...]
    keys: int = 1
    has_words: bool = False
    condition: Expression | None = None

    def make(self) -> SharedWindowJoinOperator:
        words = WORDS if self.has_words else (None, None)
        left_keys, right_keys = (side[: self.keys] for side in KEYS)
        return SharedWindowJoinOperator(left_keys, right_keys, self.condition, words, LEFT, RIGHT, self.uses)

    def bit(self, use: WindowUse) -> int:
        """What the word of a row of the use has; every bit if there are no words."""
        classes = list(dict.fromkeys(each.selections for each in self.uses))
        return 1 << classes.index(use.selections) if self.has_words else -1

    def pairs(self, use: WindowUse, lefts: Elements, rights: Elements) -> Elements:
        """The definition."""
        out: Elements = []
        for left, *l_times in windowed(lefts, use.left):
            for right, *r_times in windowed(rights, use.right):
                start, end = max(l_times[0], r_times[0]), min(l_times[1], r_times[1])
                equal = not self.keys or (left[0] is not None and left[0] == right[0])
                less = self.condition is None or number(left, 1) < number(right, 1)
                wanted = not self.has_words or number(left, 2) & number(right, 2) & self.bit(use)
                if start < end and equal and less and wanted:
                    out.append(((*left[:2], *right[:2]), start, end))
        return out


def windowed(rows: Elements, extent: WindowExtent) -> Elements:
    starts, ends = window(np.array([start for _, start, _ in rows], np.int64), *extent)
    elements = zip((row for row, _, _ in rows), starts.tolist(), ends.tolist(), strict=True)
    return [element for element in elements if element[1] < element[2]]


def row_lists(side: str) -> st.SearchStrategy[Elements]:
    value = st.tuples(st.sampled_from(("a", "a", "b", None)), st.integers(0, 3), st.integers(1, 7))
    return st.lists(st.tuples(value, st.integers(-10, 30)), max_size=8).map(
        lambda drawn: [(row, time, time + 1) for row, time in drawn]
    )


extents: st.SearchStrategy[WindowExtent] = st.one_of(
    st.just(POINTS),
    st.tuples(st.integers(1, 12), st.just(1), st.just(0)),
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 3)),
    st.just((None, 1, 0)),
)
selections = st.sampled_from((("", ""), ("p", ""), ("p", "q")))
use_lists = st.lists(st.builds(WindowUse, extents, extents, selections), min_size=1, max_size=4).map(tuple)
joins = st.builds(Join, use_lists, st.sampled_from((0, 1, 1)), st.booleans(), st.sampled_from((None, None, LESS)))


def in_order(elements: Elements) -> list[str]:
    return sorted(map(str, elements))


def one(time: int, key: str = "a") -> Elements:
    return [((key, 0, 1), time, time + 1)]


def uses(*windows: tuple[int, int]) -> tuple[WindowUse, ...]:
    return tuple(WindowUse((left, 1, 0), (right, 1, 0)) for left, right in windows)
