"""Functions of texts over whole columns."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.core.types import VARCHAR
from strandline.functions.definitions.strings import MOST_CHARACTERS, WORD, translation
from strandline.logical.expressions import Call, Literal
from strandline.runtime.kernels.columns import constant, let, mapped


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


def _stripped(strip: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[..., pl.Expr]:
    def stripped(_: Call, text: pl.Expr, characters: pl.Expr | None = None) -> pl.Expr:
        if characters is None:
            return strip(text, constant(" ", VARCHAR))
        # Without characters Polars takes away all kinds of blanks: a NULL must not mean that.
        return let((text, characters), lambda s, c: pl.when(c.is_not_null()).then(strip(s, c)))

    return stripped


def _padded(before: bool) -> Callable[..., pl.Expr]:
    def padded(_: Call, text: pl.Expr, size: pl.Expr, fill: pl.Expr | None = None) -> pl.Expr:
        return let(
            (text, size.cast(pl.Int64), constant(" ", VARCHAR) if fill is None else fill),
            lambda s, n, f: pl.when(n <= MOST_CHARACTERS).then((n - s.str.len_chars().cast(pl.Int64)).clip(0)),
            lambda s, n, f, missing: (
                pl.when(f != "").then(-(-missing // f.str.len_chars().cast(pl.Int64))).otherwise(0)
            ),
            lambda s, n, f, missing, times: f.repeat_by(times.fill_null(0)).list.join("").str.head(missing),
            lambda s, n, f, missing, times, padding: pl.when(missing.is_not_null() & f.is_not_null()).then(
                pl.concat_str(padding, s.str.head(n.clip(0)))
                if before
                else pl.concat_str(s.str.head(n.clip(0)), padding)
            ),
        )

    return padded


def _repeat(_: Call, text: pl.Expr, count: pl.Expr) -> pl.Expr:
    return let(
        (text, count.cast(pl.Int64)),
        lambda s, n: pl.when(s == "").then(n.clip(0, 1)).otherwise(n.clip(0)),
        lambda s, n, times: pl.when(times * s.str.len_chars().cast(pl.Int64) <= MOST_CHARACTERS).then(times),
        lambda s, n, times, possible: pl.when(possible.is_not_null()).then(
            s.repeat_by(possible.fill_null(0)).list.join("")
        ),
    )


def _overlay(call: Call, text: pl.Expr, new: pl.Expr, start: pl.Expr, count: pl.Expr | None = None) -> pl.Expr:
    length = new.str.len_chars() if count is None else count
    return let(
        (text, new, start.cast(pl.Int64), length.cast(pl.Int64)),
        lambda s, r, a, n: pl.when((a > 0) & n.is_not_null()).then(
            pl.concat_str(s.str.head(a.clip(1) - 1), r, s.str.slice((a + n).clip(1) - 1))
        ),
    )


def _split_part(_: Call, text: pl.Expr, separator: pl.Expr, number: pl.Expr) -> pl.Expr:
    return let(
        (text, separator, number.cast(pl.Int64)),
        lambda s, by, n: pl.when(by == "").then(pl.concat_list(s)).otherwise(s.str.split(by)),
        lambda s, by, n, parts: parts.list.get(pl.when(n > 0).then(n - 1).otherwise(n), null_on_oob=True),
        lambda s, by, n, parts, part: pl.when((n != 0) & s.is_not_null() & by.is_not_null()).then(part.fill_null("")),
    )


def _split(_: Call, text: pl.Expr, separator: pl.Expr) -> pl.Expr:
    return text.str.split(separator)


def _part(call: Call, parts: pl.Expr, number: pl.Expr) -> pl.Expr:
    match call.arguments[1]:
        case Literal(int(known), _) if known:
            part = parts.list.get(known - 1 if known > 0 else known, null_on_oob=True)
            return pl.when(parts.is_not_null()).then(part.fill_null(""))
    return let(
        (parts, number.cast(pl.Int64)),
        lambda p, n: p.list.get(pl.when(n > 0).then(n - 1).otherwise(n), null_on_oob=True),
        lambda p, n, part: pl.when((n != 0) & p.is_not_null()).then(part.fill_null("")),
    )


def _position(_: Call, text: pl.Expr, part: pl.Expr) -> pl.Expr:
    """Polars finds bytes: the characters before them are counted."""
    return let(
        (text, part),
        lambda s, p: s.str.find(p, literal=True),
        lambda s, p, at: s.cast(pl.Binary).bin.slice(0, at).cast(pl.String).str.len_chars().cast(pl.Int32) + 1,
        lambda s, p, at, position: pl.when(s.is_not_null() & p.is_not_null()).then(
            pl.when(at.is_not_null()).then(position).otherwise(0)
        ),
    )


def _translate(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    match call.arguments[1:]:
        case (Literal(str(old), _), Literal(str(new), _)):
            becomes = translation(old, new)
            return text.str.replace_many(list(becomes), list(becomes.values())) if becomes else text
    raise AssertionError("the characters of translate are checked when the query is bound")


def _initcap(_: Call, text: pl.Expr) -> pl.Expr:
    run = pl.element()
    first = run.str.head(1)
    capital = pl.when(first.str.to_uppercase().str.len_chars() == 1).then(first.str.to_uppercase()).otherwise(first)
    word = pl.concat_str(capital, run.str.slice(1).str.to_lowercase())
    changed = pl.when(run.str.contains(f"^{WORD}$")).then(word).otherwise(run)
    return text.str.extract_all(f"(?s){WORD}|.").list.eval(changed).list.join("")


def _reverse(_: Call, text: pl.Expr) -> pl.Expr:
    """Polars' own would keep a letter and its accent together."""
    return text.str.split("").list.reverse().list.join("")


def _concat_ws(_: Call, separator: pl.Expr, *parts: pl.Expr) -> pl.Expr:
    return let(
        (separator, pl.concat_list(parts)),
        lambda by, listed: pl.when(by.is_not_null()).then(listed.list.drop_nulls().list.join(by)),
    )


# ---- characters and hashes -------------------------------------------------------------------------------------------


def _ascii(_: Call, text: pl.Expr) -> pl.Expr:
    """From the first four bytes of UTF-8: how many there are, and six bits from each but the first."""
    padded = pl.concat_str(text.str.head(1), pl.lit("\0\0\0\0")).cast(pl.Binary)
    bytes_ = padded.bin.slice(0, 4).bin.reinterpret(dtype=pl.UInt32, endianness="big").cast(pl.Int64)
    return let(
        (bytes_,),
        lambda b: b // 2**24,
        lambda b, first: b // 2**16 % 64,
        lambda b, first, two: b // 2**8 % 64,
        lambda b, first, two, three: b % 64,
        lambda b, first, two, three, four: (
            pl.when(first < 0x80)
            .then(first)
            .when(first < 0xE0)
            .then(first % 32 * 64 + two)
            .when(first < 0xF0)
            .then(first % 16 * 4096 + two * 64 + three)
            .otherwise(first % 8 * 262144 + two * 4096 + three * 64 + four)
            .cast(pl.Int32)
        ),
    )


def _characters(codes: pl.Series) -> pl.Series:
    """The UTF-8 form of code points, written byte by byte of all of them."""
    possible = codes.is_between(1, 0xD7FF) | codes.is_between(0xE000, 0x10FFFF)
    code = codes.set(~possible, None).fill_null(0).to_numpy()
    longer = [code >= bound for bound in (0x80, 0x800, 0x10000)]
    size = 1 + np.sum(longer, axis=0)
    lead = np.select(longer[::-1], [0xF0, 0xE0, 0xC0], 0)
    columns = [lead | code >> 6 * (size - 1)]
    columns += [
        np.where(size > place, 0x80 | (code >> 6 * np.maximum(size - 1 - place, 0)) & 0x3F, 0) for place in (1, 2, 3)
    ]
    used = np.arange(4) < size[:, None]
    content = np.stack(columns, axis=1).astype(np.uint8)[used]
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
    texts = pa.LargeStringArray.from_buffers(len(codes), pa.py_buffer(offsets), pa.py_buffer(content))
    return pl.select(pl.when(possible).then(pl.Series(texts, dtype=pl.String))).to_series()


def _hashes(texts: pl.Series) -> pl.Series:
    """Neither Polars nor Arrow has it: each different text is hashed once, by the library in C."""
    different = texts.unique()
    hashed = [None if s is None else hashlib.md5(s.encode(), usedforsecurity=False).hexdigest() for s in different]
    return texts.replace_strict(different, pl.Series(hashed, dtype=pl.String), return_dtype=pl.String)


CALLS: Final[Mapping[str, Callable[..., pl.Expr]]] = {
    "||": lambda _, a, b: pl.concat_str(a, b),
    "concat": lambda _, *parts: pl.concat_str(parts, ignore_nulls=True),
    "concat_ws": _concat_ws,
    "lower": lambda _, s: s.str.to_lowercase(),
    "upper": lambda _, s: s.str.to_uppercase(),
    "initcap": _initcap,
    "length": lambda _, s: s.str.len_chars().cast(pl.Int32),
    "octet_length": lambda _, s: s.str.len_bytes().cast(pl.Int32),
    "trim": _stripped(lambda s, characters: s.str.strip_chars(characters)),
    "ltrim": _stripped(lambda s, characters: s.str.strip_chars_start(characters)),
    "rtrim": _stripped(lambda s, characters: s.str.strip_chars_end(characters)),
    "substring": _substring,
    "left": lambda _, s, n: s.str.head(n),
    "right": lambda _, s, n: s.str.tail(n),
    "lpad": _padded(before=True),
    "rpad": _padded(before=False),
    "repeat": _repeat,
    "reverse": _reverse,
    "replace": _replace,
    "translate": _translate,
    "overlay": _overlay,
    "split_part": _split_part,
    # The steps of split_part, where several parts of a text are asked for.
    "@split": _split,
    "@part": _part,
    "strpos": _position,
    "contains": lambda _, s, part: s.str.contains(part, literal=True),
    "starts_with": lambda _, s, prefix: s.str.starts_with(prefix),
    "ends_with": lambda _, s, suffix: s.str.ends_with(suffix),
    "ascii": _ascii,
    "chr": lambda _, n: mapped(n, _characters, VARCHAR),
    "md5": lambda _, s: mapped(s, _hashes, VARCHAR),
}
