"""Patterns of texts over whole columns: LIKE, SIMILAR TO and regular expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from strandline.functions.definitions.patterns import like_regex, like_tokens, replacement
from strandline.functions.regex import Regex, regex, similar_regex
from strandline.logical.expressions import Call, Literal


def _like(call: Call, text: pl.Expr, pattern: pl.Expr, _: pl.Expr | None = None) -> pl.Expr:
    escape = _known(call)[1] if len(call.arguments) == 3 else "\\"
    match call.arguments[1]:
        case Literal(str(known), _):
            return text.str.contains(f"(?s)^{like_regex(known, escape)}$")
    token = pl.element()
    form = (
        pl.when(token == "%")
        .then(pl.lit(".*"))
        .when(token == "_")
        .then(pl.lit("."))
        .otherwise(token.str.slice(-1).str.escape_regex())
    )
    regex = pattern.str.extract_all(f"(?s){like_tokens(escape)}").list.eval(form).list.join("")
    return text.str.contains(pl.concat_str(pl.lit("(?s)^"), regex, pl.lit("$")))


def _known(call: Call) -> list[str]:
    """The arguments after the first; what is not a literal is none of our business."""
    return [str(argument.value) if isinstance(argument, Literal) else "" for argument in call.arguments[1:]]


def _pattern(call: Call) -> Regex:
    """The pattern, and the flags if they stand right after it."""
    return regex(*_known(call)[:2])


def _similar(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    return text.str.contains(similar_regex(*_known(call)).rust)


def _substring_match(call: Call, text: pl.Expr, _: pl.Expr) -> pl.Expr:
    pattern = _pattern(call)
    return text.str.extract(pattern.rust, 1 if pattern.groups else 0)


def _regexp_replace(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    pattern, new, flags = (*_known(call), "")[:3]
    rust = regex(pattern, flags.replace("g", "")).rust
    parts = (part.replace("$", "$$") if isinstance(part, str) else f"${{{part}}}" for part in replacement(new))
    replace = text.str.replace_all if "g" in flags else text.str.replace
    return replace(rust, "".join(parts))


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "like": _like,
    "similar": _similar,
    "regexp_like": lambda call, s, *_: s.str.contains(_pattern(call).rust),
    "match": _substring_match,
    "regexp_substr": lambda call, s, _: s.str.extract(_pattern(call).rust, 0),
    "regexp_count": lambda call, s, _: s.str.count_matches(_pattern(call).rust).cast(pl.Int32),
    "regexp_replace": _regexp_replace,
}
