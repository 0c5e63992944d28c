"""Functions of texts over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from strandline.algebra.expressions import Call, Literal
from strandline.execution.scalars.basis import let


def _substring(call: Call, text: pl.Expr, start: pl.Expr, count: pl.Expr | None = None) -> pl.Expr:
    first = start.cast(pl.Int64)
    if count is None:
        return let((text, first), lambda s, a: pl.when(a.is_not_null()).then(s.str.slice(a.clip(1) - 1)))
    return let(
        (text, first, count.cast(pl.Int64)),
        lambda s, a, n: pl.when(a.is_not_null() & (n >= 0)).then(
            s.str.slice(a.clip(1) - 1, ((a + n).clip(1) - a.clip(1)).clip(0))
        ),
    )


def _replace(call: Call, text: pl.Expr, old: pl.Expr, new: pl.Expr) -> pl.Expr:
    match call.arguments:
        case (_, Literal(str(known), _), Literal(str(by), _)):
            return text.str.replace_all(known, by, literal=True) if known else text
    return let(
        (text, old, new),
        lambda s, a, b: pl.when((a == "") & b.is_not_null()).then(s).otherwise(s.str.split(a).list.join(b)),
    )


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "||": lambda _, a, b: pl.concat_str(a, b),
    "lower": lambda _, s: s.str.to_lowercase(),
    "upper": lambda _, s: s.str.to_uppercase(),
    "length": lambda _, s: s.str.len_chars().cast(pl.Int32),
    "trim": lambda _, s: s.str.strip_chars(" "),
    "ltrim": lambda _, s: s.str.strip_chars_start(" "),
    "rtrim": lambda _, s: s.str.strip_chars_end(" "),
    "substring": _substring,
    "replace": _replace,
    "concat": lambda _, *parts: pl.concat_str(parts, ignore_nulls=True),
    "starts_with": lambda _, s, prefix: s.str.starts_with(prefix),
}
