"""LIKE over whole columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from strandline.algebra.evaluate import like_regex
from strandline.algebra.expressions import Call, Literal


def _like(call: Call, text: pl.Expr, pattern: pl.Expr) -> pl.Expr:
    match call.arguments[1]:
        case Literal(str(known), _):
            return text.str.contains(f"(?s)^{like_regex(known)}$")
    token = pl.element()
    form = (
        pl.when(token == "%")
        .then(pl.lit(".*"))
        .when(token == "_")
        .then(pl.lit("."))
        .otherwise(token.str.slice(-1).str.escape_regex())
    )
    regex = pattern.str.extract_all(r"(?s)\\.|.").list.eval(form).list.join("")
    return text.str.contains(pl.concat_str(pl.lit("(?s)^"), regex, pl.lit("$")))


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "like": _like,
}
