"""Query shapes of `bench costs`: equivalent plans over generated streams.

The cost model was improved with `SHAPES` in view. `HELD_OUT_SHAPES` were written afterwards, and nothing is fitted to
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from strandline.apps.bench.generated_streams import GeneratedStream


@dataclass(frozen=True, slots=True)
class Shape:
    """Streams, seconds of a window and of a batch, and texts with the same result; those in `raw` are not rewritten."""

    streams: tuple[GeneratedStream, ...]
    window: float
    batch: float
    plans: Mapping[str, str]
    raw: frozenset[str] = field(default_factory=frozenset)

    def text(self, label: str) -> str:
        return self.plans[label].replace("{w}", f"WINDOW(RANGE {round(self.window * 1000)} MILLISECONDS)")


def _stream(name: str, rate: int, **keys: int) -> GeneratedStream:
    return GeneratedStream(name, rate, keys)


def _orders(select: str, conditions: Mapping[frozenset[str], str], orders: Sequence[str]) -> dict[str, str]:
    """The same join in several orders, each as a text: "abc" joins a and b, then c."""
    queries = {}
    for order in orders:
        text = f"{order[0]} {{w}}"
        for position, name in enumerate(order[1:], 1):
            on = [c for pair, c in conditions.items() if name in pair and pair <= set(order[: position + 1])]
            text += f" JOIN {name} {{w}} ON {' AND '.join(on)}" if on else f" CROSS JOIN {name} {{w}}"
        queries["⋈".join(order)] = f"SELECT {select} FROM {text}"
    return queries


def _pairs(**on: str) -> dict[frozenset[str], str]:
    return {frozenset(pair): condition for pair, condition in on.items()}


_DISTINCT_JOIN: Final = (
    "SELECT x.k FROM (SELECT DISTINCT k FROM a {w}) x JOIN (SELECT DISTINCT k FROM b {w}) y ON x.k = y.k"
)
_CHAIN: Final = _orders("a.v, b.v AS w, c.v AS u", _pairs(ab="a.k = b.k", bc="b.m = c.m"), ["abc", "bca"])
SHAPES: Final[Mapping[str, Shape]] = {
    "3 joins, 1 s": Shape(
        (_stream("a", 20_000, k=20_000), _stream("b", 4_000, k=20_000, m=50), _stream("c", 1_000, m=50)), 1, 1,
        _CHAIN,
    ),
    "3 joins, 10 s": Shape(
        (_stream("a", 5_000, k=5_000), _stream("b", 200, k=5_000, m=200), _stream("c", 2_000, m=200)), 10, 1,
        _CHAIN,
    ),
    "3 joins, 1 min": Shape(
        (_stream("a", 300, k=3_000), _stream("b", 300, k=3_000, m=100), _stream("c", 20, m=100)), 60, 2,
        _CHAIN,
    ),
    "star of 4, 5 s": Shape(
        (_stream("a", 2_000, k=2_000, m=5_000, n=20_000), _stream("b", 2_000, k=2_000), _stream("c", 1_000, m=5_000),
         _stream("d", 400, n=20_000)), 5, 1,
        _orders("a.v, b.v AS w, c.v AS u, d.v AS x",
                _pairs(ab="a.k = b.k", ac="a.m = c.m", ad="a.n = d.n"), ["abcd", "adcb", "acbd"]),
    ),
    "filter and join, 10 s": Shape(
        (_stream("a", 5_000, k=10_000, g=10), _stream("b", 5_000, k=10_000)), 10, 1,
        dict.fromkeys(
            ("filter first", "join first"),
            "SELECT * FROM (SELECT a.k, a.g, a.v, b.v AS w FROM a {w} JOIN b {w} ON a.k = b.k) x WHERE g = 3"),
        frozenset({"join first"}),
    ),
    "distinct and join, 5 s": Shape(
        (_stream("a", 4_000, k=500), _stream("b", 1_000, k=500)), 5, 1,
        {"distinct first": _DISTINCT_JOIN,
         "join first": "SELECT DISTINCT a.k FROM a {w} JOIN b {w} ON a.k = b.k"},
    ),
    "group and join, 10 s": Shape(
        (_stream("a", 2_000, k=1_000), _stream("b", 500, k=1_000)), 10, 1,
        {"group first": "SELECT x.k, x.n * y.n AS n FROM (SELECT k, COUNT(*) AS n FROM a {w} GROUP BY k) x"
                        " JOIN (SELECT k, COUNT(*) AS n FROM b {w} GROUP BY k) y ON x.k = y.k",
         "join first": "SELECT a.k, COUNT(*) AS n FROM a {w} JOIN b {w} ON a.k = b.k GROUP BY a.k"},
    ),
    "filter and group, 1 min": Shape(
        (_stream("a", 5_000, k=2_000),), 60, 2,
        dict.fromkeys(
            ("filter first", "group first"),
            "SELECT * FROM (SELECT k, COUNT(*) AS n, SUM(v) AS s FROM a {w} GROUP BY k) x WHERE k = 7"),
        frozenset({"group first"}),
    ),
    "filter and distinct, 10 min": Shape(
        (_stream("a", 500, k=1_000, g=20),), 600, 5,
        dict.fromkeys(
            ("filter first", "distinct first"),
            "SELECT k FROM (SELECT DISTINCT k, g FROM a {w}) x WHERE g = 3"),
        frozenset({"distinct first"}),
    ),
    "filter and difference, 10 s": Shape(
        (_stream("a", 4_000, k=5_000, g=10), _stream("b", 2_000, k=5_000, g=10)), 10, 1,
        dict.fromkeys(
            ("filter first", "difference first"),
            "SELECT k FROM (SELECT k, g FROM a {w} EXCEPT ALL SELECT k, g FROM b {w}) x WHERE g = 3"),
        frozenset({"difference first"}),
    ),
    "distinct and union, 1 min": Shape(
        (_stream("a", 1_000, k=2_000), _stream("b", 1_000, k=2_000)), 60, 2,
        {"once": "SELECT DISTINCT k FROM (SELECT k FROM a {w} UNION ALL SELECT k FROM b {w}) x",
         "twice": "SELECT DISTINCT k FROM (SELECT DISTINCT k FROM a {w} UNION ALL SELECT DISTINCT k FROM b {w}) x"},
    ),
    "matches, 10 s": Shape(
        (_stream("a", 2_000, k=2_000), _stream("b", 1_000, k=2_000)), 10, 1,
        {"semi join": "SELECT a.k, a.v FROM a {w} SEMI JOIN b {w} ON a.k = b.k",
         "distinct and join": "SELECT a.k, a.v FROM a {w} JOIN (SELECT DISTINCT k FROM b {w}) y ON a.k = y.k"},
    ),
    "intersection, 10 s": Shape(
        (_stream("a", 3_000, k=3_000), _stream("b", 3_000, k=3_000)), 10, 1,
        {"intersect": "SELECT k FROM a {w} INTERSECT SELECT k FROM b {w}",
         "distinct and join": _DISTINCT_JOIN},
    ),
    "difference, 1 min": Shape(
        (_stream("a", 1_000, k=20_000), _stream("b", 300, k=20_000)), 60, 2,
        {"except": "SELECT k FROM a {w} EXCEPT SELECT k FROM b {w}",
         "distinct first": "SELECT DISTINCT k FROM a {w} EXCEPT SELECT DISTINCT k FROM b {w}",
         "anti join": "SELECT DISTINCT a.k FROM a {w} ANTI JOIN b {w} ON a.k = b.k"},
    ),
}  # fmt: skip

_COUNTED: Final = "SELECT k, COUNT(*) AS n FROM {stream} {{w}} GROUP BY k"
_COUNT_A, _COUNT_B = (_COUNTED.format(stream=stream) for stream in "ab")
HELD_OUT_SHAPES: Final[Mapping[str, Shape]] = {
    "triangle, 8 s": Shape(
        (_stream("a", 1_000, k=500, n=2_000), _stream("b", 300, k=500, m=4_000), _stream("c", 1_500, m=4_000, n=2_000)),
        8, 1,
        _orders("a.v, b.v AS w, c.v AS u", _pairs(ab="a.k = b.k", bc="b.m = c.m", ac="a.n = c.n"), ["abc", "acb"]),
    ),
    "chain of 4, 6 s": Shape(
        (_stream("a", 3_000, k=8_000), _stream("b", 500, k=8_000, m=1_000), _stream("c", 500, m=1_000, n=300),
         _stream("d", 100, n=300)), 6, 1,
        _orders("a.v, b.v AS w, c.v AS u, d.v AS x", _pairs(ab="a.k = b.k", bc="b.m = c.m", cd="c.n = d.n"),
                ["abcd", "dcba"]),
    ),
    "windows of 3 and 20 s": Shape(
        (_stream("a", 2_000, k=4_000), _stream("b", 1_000, k=4_000, m=700), _stream("c", 150, m=700)), 20, 1,
        {"a⋈b⋈c": "SELECT a.v, c.v AS u FROM a WINDOW(RANGE 3 SECONDS) JOIN b {w} ON a.k = b.k JOIN c {w} ON b.m = c.m",
         "b⋈c⋈a": "SELECT a.v, c.v AS u FROM b {w} JOIN c {w} ON b.m = c.m"
                  " JOIN a WINDOW(RANGE 3 SECONDS) ON a.k = b.k"},
    ),
    "filter and union, 5 s": Shape(
        (_stream("a", 6_000, k=900, g=8), _stream("b", 3_000, k=900, g=8)), 5, 1,
        dict.fromkeys(
            ("filter first", "group first"),
            "SELECT * FROM (SELECT k, g, COUNT(*) AS n FROM (SELECT k, g FROM a {w} UNION ALL SELECT k, g FROM b {w}) x"
            " GROUP BY k, g) y WHERE g = 5"),
        frozenset({"group first"}),
    ),
    "group and union, 12 s": Shape(
        (_stream("a", 1_500, k=300), _stream("b", 2_500, k=300)), 12, 1,
        {"once": "SELECT k, COUNT(*) AS n FROM (SELECT k FROM a {w} UNION ALL SELECT k FROM b {w}) x GROUP BY k",
         "twice": f"SELECT k, SUM(n) AS n FROM ({_COUNT_A} UNION ALL {_COUNT_B}) x GROUP BY k"},
    ),
    "distinct and join, 20 s": Shape(
        (_stream("a", 800, k=3_000), _stream("b", 1_200, k=3_000)), 20, 1,
        {"distinct first": _DISTINCT_JOIN,
         "join first": "SELECT DISTINCT a.k FROM a {w} JOIN b {w} ON a.k = b.k"},
    ),
    "many matches, 8 s": Shape(
        (_stream("a", 1_000, k=150), _stream("b", 800, k=150)), 8, 1,
        {"semi join": "SELECT a.k, a.v FROM a {w} SEMI JOIN b {w} ON a.k = b.k",
         "distinct and join": "SELECT a.k, a.v FROM a {w} JOIN (SELECT DISTINCT k FROM b {w}) y ON a.k = y.k"},
    ),
    "rare intersection, 15 s": Shape(
        (_stream("a", 4_000, k=30_000), _stream("b", 200, k=30_000)), 15, 1,
        {"intersect": "SELECT k FROM a {w} INTERSECT SELECT k FROM b {w}",
         "distinct and join": _DISTINCT_JOIN},
    ),
    "outer join and filter, 6 s": Shape(
        (_stream("a", 1_500, k=5_000, g=6), _stream("b", 1_000, k=5_000)), 6, 1,
        dict.fromkeys(
            ("filter first", "join first"),
            "SELECT * FROM (SELECT a.k, a.g, a.v, b.v AS w FROM a {w} LEFT JOIN b {w} ON a.k = b.k) x WHERE g = 2"),
        frozenset({"join first"}),
    ),
    "difference of few, 10 s": Shape(
        (_stream("a", 2_000, k=600), _stream("b", 40, k=600)), 10, 1,
        {"except": "SELECT k FROM a {w} EXCEPT SELECT k FROM b {w}",
         "anti join": "SELECT x.k FROM (SELECT DISTINCT k FROM a {w}) x ANTI JOIN b {w} ON x.k = b.k"},
    ),
}  # fmt: skip
