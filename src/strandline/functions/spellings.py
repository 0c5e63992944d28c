"""What other dialects call things: calls that mean an expression of this language.

A spelling is a call and the expression that it stands for, with the names of its arguments in it; the parser writes
the one for the other (`sql/parser/spellings.py`). So there is nothing else to know about such a function: types,
NULLs, errors and speed are those of the expression. An argument called `unit` is a unit of time, in quotes or
without; one that is a number is that number only. Of several spellings of a name, the first that fits counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Spelling:
    """A call, `means` what it stands for, and other names that it has."""

    written: str
    means: str
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.written.partition("(")[0]

    @property
    def parameters(self) -> tuple[str, ...]:
        listed = self.written.partition("(")[2].removesuffix(")")
        return tuple(re.split(r",\s*", listed)) if listed else ()


AGGREGATE_SPELLINGS: Final = (
    Spelling("max_by(x, y)", "FIRST(x ORDER BY y DESC) FILTER (WHERE y IS NOT NULL)", ("arg_max",)),
    Spelling("min_by(x, y)", "FIRST(x ORDER BY y) FILTER (WHERE y IS NOT NULL)", ("arg_min",)),
    Spelling("count_if(c)", "COUNT(*) FILTER (WHERE c)", ("countif",)),
    Spelling("sum_if(x, c)", "SUM(x) FILTER (WHERE c)", ("sumif",)),
    Spelling("avg_if(x, c)", "AVG(x) FILTER (WHERE c)", ("avgif",)),
    Spelling("mean(x)", "AVG(x)"),
    Spelling("any_value(x)", "MIN(x)", ("arbitrary",)),
    Spelling("approx_count_distinct(x)", "COUNT(DISTINCT x)", ("approx_distinct", "count_distinct")),
    Spelling("quantile_cont(x, f)", "PERCENTILE_CONT(f) WITHIN GROUP (ORDER BY x)", ("percentile",)),
    Spelling("quantile_disc(x, f)", "PERCENTILE_DISC(f) WITHIN GROUP (ORDER BY x)",
             ("quantile", "approx_quantile", "approx_percentile", "percentile_approx")),
    Spelling("mode(x)", "MODE() WITHIN GROUP (ORDER BY x)"),
    Spelling("string_agg(x)", "STRING_AGG(x, ',')", ("group_concat",)),
    Spelling("group_concat(x, s)", "STRING_AGG(x, s)"),
    Spelling("listagg(x)", "STRING_AGG(x, '')"),
    Spelling("list(x)", "ARRAY_AGG(x)"),
    Spelling("logical_and(x)", "BOOL_AND(x)", ("booland_agg",)),
    Spelling("logical_or(x)", "BOOL_OR(x)", ("boolor_agg",)),
    Spelling("regr_count(y, x)", "COUNT(*) FILTER (WHERE y IS NOT NULL AND x IS NOT NULL)"),
    Spelling("regr_avgx(y, x)", "AVG(CAST(x AS DOUBLE)) FILTER (WHERE y IS NOT NULL)"),
    Spelling("regr_avgy(y, x)", "AVG(CAST(y AS DOUBLE)) FILTER (WHERE x IS NOT NULL)"),
)  # fmt: skip

SCALAR_SPELLINGS: Final = (
    Spelling("if(c, a, b)", "CASE WHEN c THEN a ELSE b END", ("iff",)),
    Spelling("if(c, a)", "CASE WHEN c THEN a END"),
    Spelling("isnull(a)", "a IS NULL"),
    Spelling("isnull(a, b)", "coalesce(a, b)"),
    Spelling("nvl2(a, b, c)", "CASE WHEN a IS NOT NULL THEN b ELSE c END"),
    Spelling("zeroifnull(x)", "coalesce(x, 0)"),
    Spelling("locate(part, s)", "strpos(s, part)", ("charindex",)),
    Spelling("mid(s, a, n)", "substring(s, a, n)"),
    Spelling("space(n)", "repeat(' ', n)"),
    Spelling("regexp_extract(s, p, 0)", "regexp_substr(s, p)"),
    Spelling("regexp_extract(s, p, 1)", "substring(s, p)"),
    Spelling("regexp_replace_all(s, p, new)", "regexp_replace(s, p, new, 'g')"),
    Spelling("sha2(s, 256)", "sha256(s)"),
    Spelling("array_length(a, 1)", "cardinality(a)"),
    Spelling("date(x)", "CAST(x AS DATE)", ("to_date",)),
    Spelling("datepart(unit, ts)", "date_part(unit, ts)"),
    Spelling("dayofmonth(ts)", "day(ts)"),
    Spelling("dayofyear(ts)", "doy(ts)"),
    Spelling("weekofyear(ts)", "week(ts)"),
    Spelling("from_unixtime(s)", "to_timestamp(s)", ("timestamp_seconds",)),
    Spelling("unix_timestamp(ts)", "CAST(floor(epoch(ts)) AS BIGINT)", ("unix_seconds", "to_unix_timestamp")),
    Spelling("unix_millis(ts)", "epoch_ms(ts)", ("timestamp_millis",)),
    Spelling("unix_micros(ts)", "epoch_us(ts)", ("timestamp_micros", "make_timestamp")),
    Spelling("datediff(unit, a, b)", "date_diff(unit, a, b)"),
    Spelling("datediff(a, b)", "CAST(a AS DATE) - CAST(b AS DATE)"),
    Spelling("timestamp_diff(a, b, unit)", "timestampdiff(unit, b, a)"),
    Spelling("dateadd(unit, n, ts)", "date_add(unit, n, ts)", ("timestampadd",)),
    Spelling("date_add(ts, i)", "ts + i"),
    Spelling("date_sub(ts, i)", "ts - i"),
    Spelling("add_months(ts, n)", "date_add('month', n, ts)"),
    Spelling("timestamp_trunc(ts, unit)", "date_trunc(unit, ts)"),
    Spelling("time_bucket(i, ts)", "date_bin(i, ts, TIMESTAMP '2000-01-03')"),
    Spelling("time_bucket(i, ts, origin)", "date_bin(i, ts, origin)"),
)  # fmt: skip

# Functions of the language whose first argument is a unit of time, which other dialects write without quotes.
TAKE_UNITS: Final = frozenset(("date_trunc", "date_part", "date_diff", "timestampdiff", "date_add", "extract"))


def _by_name() -> Mapping[str, tuple[Spelling, ...]]:
    named: dict[str, tuple[Spelling, ...]] = {}
    for spelling in (*AGGREGATE_SPELLINGS, *SCALAR_SPELLINGS):
        for name in (spelling.name, *spelling.aliases):
            named[name] = (*named.get(name, ()), spelling)
    return MappingProxyType(named)


SPELLINGS: Final[Mapping[str, tuple[Spelling, ...]]] = _by_name()
