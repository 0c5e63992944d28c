"""Functions of texts. Positions count characters, the first is 1."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from strandline.core.lazy import pl
from strandline.core.types import BOOLEAN, INT, NULL, VARCHAR, Type, array_of
from strandline.functions.signatures import Function, FunctionError, Types, all_of, any_text, fixed
from strandline.logical.expressions import Call, Expression, Literal
from strandline.runtime.kernels.columns import constant, let, mapped

# What makes texts longer gives NULL beyond this: a slip must not fill the memory of a query that runs for months.
_MAX_CHARACTERS: Final = 1_000_000

# ---- meaning ---------------------------------------------------------------------------------------------------------


def _text_join_rule(types: Types) -> tuple[Types, Type] | None:
    # One side must be text: 1 || 2 is more likely a mistake than a text.
    return any_text(types) if any(kind in (VARCHAR, NULL) for kind in types) else None


def _substring(text: str, start: int, count: int | None = None) -> str | None:
    """Positions before the first character count too, but are empty: substring('abc', 0, 2) is 'a'."""
    if count is None:
        return text[max(start, 1) - 1 :]
    return None if count < 0 else text[max(start, 1) - 1 : max(start + count, 1) - 1]


def _pad(before: bool) -> Callable[..., str | None]:
    def padded(text: str, size: int, fill: str = " ") -> str | None:
        if size > _MAX_CHARACTERS:
            return None
        missing = max(size - len(text), 0)
        padding, kept = (fill * missing)[:missing], text[: max(size, 0)]
        return padding + kept if before else kept + padding

    return padded


def _overlay(text: str, new: str, start: int, count: int | None = None) -> str | None:
    if start <= 0:
        return None
    after = start + (len(new) if count is None else count)
    return text[: start - 1] + new + text[max(after, 1) - 1 :]


def _split_part(text: str, separator: str, number: int) -> str | None:
    """Part 1 is the first and part -1 the last; an empty separator separates nothing."""
    return _nth_part(text.split(separator) if separator else [text], number)


def _nth_part(parts: Sequence[str], number: int) -> str | None:
    if number == 0:
        return None
    at = number - 1 if number > 0 else len(parts) + number
    return parts[at] if 0 <= at < len(parts) else ""


def _translation(old: str, new: str) -> dict[str, str]:
    """What becomes of each character of `old`: the one at its place in `new`, or nothing if there is none."""
    pairs = ((character, new[index : index + 1]) for index, character in enumerate(old))
    return dict(reversed(list(pairs)))  # of several, the first counts


# Letters and digits, roughly: ASCII's, and the blocks beyond that are neither punctuation nor symbols nor accents of
# their own, which end a word in PostgreSQL, too. Written out, so that it means the same to Python and to Rust, whatever
# version of Unicode they know.
_WORD: Final = (
    r"[0-9A-Za-z\xaa\xb5\xba\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u1fff\u2c00-\u2dff\u3040-\ud7ff\uf900-\ufdff\uff10-\uff19"
    r"\uff21-\uff3a\uff41-\uff5a\uff66-\uffdc\U00010000-\U0001efff\U00020000-\U0010ffff]+"
)


def _initcap(text: str) -> str:
    return re.sub(_WORD, lambda word: _capital(word[0][0]) + word[0][1:].lower(), text)


def _capital(letter: str) -> str:
    """A letter whose upper case is several letters stays as it is."""
    upper = letter.upper()
    return upper if len(upper) == 1 else letter


def _check_characters(arguments: Sequence[Expression]) -> None:
    if not all(isinstance(argument, Literal) for argument in arguments[1:]):
        raise FunctionError("the characters of translate must be text literals", "Write translate(s, 'abc', 'xy').")


def _md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


# ---- over columns ----------------------------------------------------------------------------------------------------


def _substring_columns(call: Call, text: pl.Expr, start: pl.Expr, count: pl.Expr | None = None) -> pl.Expr:
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
        case (_, Literal(str(literal), _), Literal(str(by), _)):
            return text.str.replace_all(literal, by, literal=True) if literal else text
    return let(
        (text, old, new),
        lambda s, a, b: pl.when((a == "") & b.is_not_null()).then(s).otherwise(s.str.split(a).list.join(b)),
    )


def _pad_columns(before: bool) -> Callable[..., pl.Expr]:
    def padded(_: Call, text: pl.Expr, size: pl.Expr, fill: pl.Expr | None = None) -> pl.Expr:
        return let(
            (text, size.cast(pl.Int64), constant(" ", VARCHAR) if fill is None else fill),
            lambda s, n, f: pl.when(n <= _MAX_CHARACTERS).then((n - s.str.len_chars().cast(pl.Int64)).clip(0)),
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


def _repeat_columns(_: Call, text: pl.Expr, count: pl.Expr) -> pl.Expr:
    return let(
        (text, count.cast(pl.Int64)),
        lambda s, n: pl.when(s == "").then(n.clip(0, 1)).otherwise(n.clip(0)),
        lambda s, n, times: pl.when(times * s.str.len_chars().cast(pl.Int64) <= _MAX_CHARACTERS).then(times),
        lambda s, n, times, possible: pl.when(possible.is_not_null()).then(
            s.repeat_by(possible.fill_null(0)).list.join("")
        ),
    )


def _overlay_columns(call: Call, text: pl.Expr, new: pl.Expr, start: pl.Expr, count: pl.Expr | None = None) -> pl.Expr:
    length = new.str.len_chars() if count is None else count
    return let(
        (text, new, start.cast(pl.Int64), length.cast(pl.Int64)),
        lambda s, r, a, n: pl.when((a > 0) & n.is_not_null()).then(
            pl.concat_str(s.str.head(a.clip(1) - 1), r, s.str.slice((a + n).clip(1) - 1))
        ),
    )


def _split_part_columns(_: Call, text: pl.Expr, separator: pl.Expr, number: pl.Expr) -> pl.Expr:
    parts = let((text, separator), lambda s, by: pl.when(by == "").then(pl.concat_list(s)).otherwise(s.str.split(by)))
    return _nth_part_columns(parts, number)


def _nth_part_columns(parts: pl.Expr, number: pl.Expr) -> pl.Expr:
    return let(
        (parts, number.cast(pl.Int64)),
        lambda p, n: p.list.get(pl.when(n > 0).then(n - 1).otherwise(n), null_on_oob=True),
        lambda p, n, part: pl.when((n != 0) & p.is_not_null()).then(part.fill_null("")),
    )


def _part(call: Call, parts: pl.Expr, number: pl.Expr) -> pl.Expr:
    match call.arguments[1]:
        case Literal(int(literal), _) if literal:
            part = parts.list.get(literal - 1 if literal > 0 else literal, null_on_oob=True)
            return pl.when(parts.is_not_null()).then(part.fill_null(""))
    return _nth_part_columns(parts, number)


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


def _translate_columns(call: Call, text: pl.Expr, *_: pl.Expr) -> pl.Expr:
    match call.arguments[1:]:
        case (Literal(str(old), _), Literal(str(new), _)):
            becomes = _translation(old, new)
            return text.str.replace_many(list(becomes), list(becomes.values())) if becomes else text
    raise AssertionError("the characters of translate are checked when the query is bound")


def _initcap_columns(_: Call, text: pl.Expr) -> pl.Expr:
    run = pl.element()
    first = run.str.head(1)
    capital = pl.when(first.str.to_uppercase().str.len_chars() == 1).then(first.str.to_uppercase()).otherwise(first)
    word = pl.concat_str(capital, run.str.slice(1).str.to_lowercase())
    changed = pl.when(run.str.contains(f"^{_WORD}$")).then(word).otherwise(run)
    return text.str.extract_all(f"(?s){_WORD}|.").list.eval(changed).list.join("")


def _concat_ws_columns(_: Call, separator: pl.Expr, *parts: pl.Expr) -> pl.Expr:
    return let(
        (separator, pl.concat_list(parts)),
        lambda by, listed: pl.when(by.is_not_null()).then(listed.list.drop_nulls().list.join(by)),
    )


def _code_points(texts: pl.Series) -> pl.Series:
    """Of the first characters: all of them as one text, which UTF-32 turns into numbers."""
    first = texts.str.head(1).replace("", "\0").fill_null("\0").str.join("")[0]
    return pl.Series(np.frombuffer(first.encode("utf-32-le"), np.int32)).set(texts.is_null(), None)


def _characters(codes: pl.Series) -> pl.Series:
    """Of code points: all of them as one text in UTF-32, which is split."""
    possible = codes.is_between(1, 0xD7FF) | codes.is_between(0xE000, 0x10FFFF)
    text = codes.set(~possible, None).fill_null(0).to_numpy().astype(np.int32).tobytes().decode("utf-32-le")
    return pl.select(pl.when(possible).then(pl.Series([text]).str.split("").explode())).to_series()


def _hashes(hashed: Callable[[str], str]) -> Callable[[pl.Series], pl.Series]:
    """Neither Polars nor Arrow has it: each different text is hashed once, by the library in C."""

    def hashes(texts: pl.Series) -> pl.Series:
        different = texts.unique()
        values = [None if s is None else hashed(s) for s in different]
        return texts.replace_strict(different, pl.Series(values, dtype=pl.String), return_dtype=pl.String)

    return hashes


def _to_array_columns(_: Call, text: pl.Expr, separator: pl.Expr) -> pl.Expr:
    return let(
        (text, separator),
        lambda s, by: pl.when(by == "").then(pl.concat_list(s)).otherwise(s.str.split(by)),
        lambda s, by, parts: pl.when(s.is_not_null() & by.is_not_null()).then(
            pl.when(s == "").then(parts.list.head(0)).otherwise(parts)
        ),
    )


def _split_columns(_: Call, text: pl.Expr, separator: pl.Expr) -> pl.Expr:
    return let(
        (text, separator),
        lambda s, by: pl.when(s.is_not_null() & by.is_not_null()).then(
            pl.when(s == "").then(pl.concat_list(s)).when(by == "").then(s.str.split("")).otherwise(s.str.split(by))
        ),
    )


# ---- declarations ----------------------------------------------------------------------------------------------------

_TEXT = fixed(VARCHAR, VARCHAR)
_TEXTS = all_of(VARCHAR, VARCHAR)
_TEST = fixed(BOOLEAN, VARCHAR, VARCHAR)
_NUMBER = fixed(INT, VARCHAR)
_SPLIT = fixed(array_of(VARCHAR), VARCHAR, VARCHAR)
_COUNTED = fixed(VARCHAR, VARCHAR, INT, VARCHAR)


def _trim(
    name: str, doc: str, meaning: Callable[[str, str], str], strip: Callable[[pl.Expr, pl.Expr], pl.Expr], *aliases: str
) -> Function:
    def stripped(_: Call, text: pl.Expr, characters: pl.Expr | None = None) -> pl.Expr:
        if characters is None:
            return strip(text, constant(" ", VARCHAR))
        # Without characters Polars takes away all kinds of blanks: a NULL must not mean that.
        return let((text, characters), lambda s, c: pl.when(c.is_not_null()).then(strip(s, c)))

    return Function(name, f"{name}(s[, characters])", doc, 1, 2, _TEXTS, lambda s, c=" ": meaning(s, c) if c else s,
                    stripped, sql={"*": f"{name}({{0}}, ' ')", "*, *": f"{name}({{0}}, {{1}})"},
                    cost=40, aliases=aliases)  # fmt: skip


def _length_rule(types: Types) -> tuple[Types, Type] | None:
    return (types, INT) if types[0].element is not None else _NUMBER(types)


def _length_columns(call: Call, value: pl.Expr) -> pl.Expr:
    is_array = call.arguments[0].type.element is not None
    return (value.list.len() if is_array else value.str.len_chars()).cast(pl.Int32)


FAMILY: Final = (
    Function("||", "a || b", "Both texts together; NULL if one is NULL.", 2, 2, _text_join_rule, lambda a, b: a + b,
             lambda _, a, b: pl.concat_str(a, b), sql="({0} || {1})", cost=40),
    Function("concat", "concat(a, …)", "All arguments as one text; NULLs are skipped.", 1, None, any_text,
             lambda *values: "".join(value for value in values if value is not None),
             lambda _, *parts: pl.concat_str(parts, ignore_nulls=True), strict=False, sql="concat({all})", cost=40),
    Function("concat_ws", "concat_ws(separator, a, …)",
             "The other arguments as one text with the separator between them; NULLs are skipped.",
             2, None, any_text,
             lambda by, *parts: None if by is None else by.join(part for part in parts if part is not None),
             _concat_ws_columns, strict=False, sql="concat_ws({all})", cost=500),
    Function("lower", "lower(s)", "The text in lower case.", 1, 1, _TEXT, str.lower, lambda _, s: s.str.to_lowercase(),
             sql="{h}lower({0})", cost=80, aliases=("lcase",)),
    Function("upper", "upper(s)", "The text in upper case.", 1, 1, _TEXT, str.upper, lambda _, s: s.str.to_uppercase(),
             sql="{h}upper({0})", cost=80, aliases=("ucase",)),
    Function("initcap", "initcap(s)", "Each word with its first letter in upper case and the others in lower case.",
             1, 1, _TEXT, _initcap, _initcap_columns, sql="{h}initcap({0})", cost=2_000),
    Function("length", "length(s)", "The number of characters, or of the elements of an array.",
             1, 1, _length_rule, len, _length_columns,
             sql={"ARRAY": "CAST(cardinality({0}) AS INTEGER)", "*": "length({0})"},
             duckdb={"ARRAY": "CAST(len({0}) AS INTEGER)"}, cost=15,
             aliases=("char_length", "character_length", "len")),
    Function("octet_length", "octet_length(s)", "The number of bytes in UTF-8.",
             1, 1, _NUMBER, lambda s: len(s.encode()), lambda _, s: s.str.len_bytes().cast(pl.Int32),
             duckdb="CAST(strlen({0}) AS INTEGER)", postgresql="octet_length({0})"),
    _trim("trim", "The text without blanks, or these characters, at both ends.",
          str.strip, lambda s, characters: s.str.strip_chars(characters), "btrim"),
    _trim("ltrim", "The same at the start only.",
          str.lstrip, lambda s, characters: s.str.strip_chars_start(characters)),
    _trim("rtrim", "The same at the end only.",
          str.rstrip, lambda s, characters: s.str.strip_chars_end(characters)),
    Function("substring", "substring(s, from[, count])",
             "The characters from a position on, the first is 1; NULL if count is negative.",
             2, 3, fixed(VARCHAR, VARCHAR, INT, INT), _substring, _substring_columns, cost=40, aliases=("substr",),
             sql={"*, *": "CASE WHEN {1} < 1 THEN {0} ELSE substring({0}, {1}) END", "*, *, *": "{h}part({all})"}),
    Function("left", "left(s, n)", "The first n characters; all but the last -n if n is negative.",
             2, 2, _COUNTED, lambda s, n: s[:n], lambda _, s, n: s.str.head(n), sql="left({0}, {1})"),
    Function("right", "right(s, n)", "The last n characters; all but the first -n if n is negative.",
             2, 2, _COUNTED, lambda s, n: s[max(len(s) - n, 0) :] if n >= 0 else s[-n:],
             lambda _, s, n: s.str.tail(n),
             sql="CASE WHEN {1} IS NOT NULL THEN right({0}, greatest({1}, -2147483647)) END"),
    Function("lpad", "lpad(s, n[, fill])", "n characters: the text with blanks, or the fill, before it; or cut.",
             2, 3, _COUNTED, _pad(before=True), _pad_columns(before=True), cost=2_000,
             sql={"*, *": "{h}padded_left({0}, {1}, ' ')", "*, *, *": "{h}padded_left({all})"}),
    Function("rpad", "rpad(s, n[, fill])", "n characters: the text with blanks, or the fill, after it; or cut.",
             2, 3, _COUNTED, _pad(before=False), _pad_columns(before=False), cost=2_000,
             sql={"*, *": "{h}padded_right({0}, {1}, ' ')", "*, *, *": "{h}padded_right({all})"}),
    Function("repeat", "repeat(s, n)", "The text n times.", 2, 2, _COUNTED,
             lambda s, n: None if len(s) * n > _MAX_CHARACTERS else s * n, _repeat_columns, cost=250,
             sql="CASE WHEN CAST(length({0}) AS BIGINT) * {1} <= 1000000 THEN repeat({0}, {1}) END"),
    # The functions of DuckDB and of Polars keep a letter and its accent together.
    Function("reverse", "reverse(s)", "The characters from the last to the first.", 1, 1, _TEXT, lambda s: s[::-1],
             lambda _, s: s.str.split("").list.reverse().list.join(""), sql="reverse({0})",
             duckdb="array_to_string(list_reverse(string_split({0}, '')), '')", cost=2_000),
    Function("replace", "replace(s, old, new)", "The text with each occurrence of old replaced.",
             3, 3, _TEXTS, lambda s, old, new: s.replace(old, new) if old else s, _replace, cost=150,
             sql="CASE WHEN {1} = '' AND {2} IS NOT NULL THEN {0} ELSE replace({0}, {1}, {2}) END"),
    Function("translate", "translate(s, 'old', 'new')",
             "Each character of old becomes the one at the same place of new, or nothing.",
             3, 3, _TEXTS, lambda s, old, new: s.translate(str.maketrans(_translation(old, new))), _translate_columns,
             check=_check_characters, sql="translate({all})", cost=250),
    Function("overlay", "overlay(s, new, from[, count])",
             "The text with count characters from a position on replaced, as many as new has if there is no count.",
             3, 4, fixed(VARCHAR, VARCHAR, VARCHAR, INT, INT), _overlay, _overlay_columns, cost=150,
             sql={"*, *, *": "{h}overlaid({all}, CAST(length({1}) AS INTEGER))", "*, *, *, *": "{h}overlaid({all})"}),
    Function("split_part", "split_part(s, separator, n)", "The nth part between separators; from the end if negative.",
             3, 3, fixed(VARCHAR, VARCHAR, VARCHAR, INT), _split_part, _split_part_columns,
             sql="{h}nth_part({all})", cost=250),
    Function("strpos", "strpos(s, part)",
             "The position of the first occurrence, also position(part IN s); 0 if there is none.",
             2, 2, fixed(INT, VARCHAR, VARCHAR), lambda s, part: s.find(part) + 1, _position,
             sql="CAST(strpos({0}, {1}) AS INTEGER)", cost=80, aliases=("instr",)),
    Function("contains", "contains(s, part)", "Whether the text has the part in it.",
             2, 2, _TEST, lambda s, part: part in s, lambda _, s, part: s.str.contains(part, literal=True),
             sql="(strpos({0}, {1}) > 0)", cost=40),
    Function("starts_with", "starts_with(s, prefix)", "Whether the text begins with the prefix.",
             2, 2, _TEST, str.startswith, lambda _, s, prefix: s.str.starts_with(prefix), sql="starts_with({0}, {1})",
             aliases=("startswith",)),
    Function("ends_with", "ends_with(s, suffix)", "Whether the text ends with the suffix.",
             2, 2, _TEST, str.endswith, lambda _, s, suffix: s.str.ends_with(suffix),
             sql="(right({0}, CAST(length({1}) AS INTEGER)) = {1})", aliases=("endswith",)),
    Function("ascii", "ascii(s)", "The code point of the first character; 0 if there is none.",
             1, 1, _NUMBER, lambda s: ord(s[0]) if s else 0, lambda _, s: mapped(s, _code_points, INT),
             sql="ascii({0})", cost=150),
    Function("chr", "chr(n)", "The character with a code point; NULL if there is none.",
             1, 1, fixed(VARCHAR, INT), lambda n: chr(n) if 0 < n < 0xD800 or 0xDFFF < n < 0x110000 else None,
             lambda _, n: mapped(n, _characters, VARCHAR), cost=150,
             sql="CASE WHEN {0} BETWEEN 1 AND 55295 OR {0} BETWEEN 57344 AND 1114111 THEN chr({0}) END"),
    Function("md5", "md5(s)", "The MD5 hash of the UTF-8 form, in 32 hexadecimal digits.",
             1, 1, _TEXT, _md5, lambda _, s: mapped(s, _hashes(_md5), VARCHAR), sql="md5({0})", cost=250),
    Function("sha256", "sha256(s)", "The SHA-256 hash of the UTF-8 form, in 64 hexadecimal digits.",
             1, 1, _TEXT, _sha256, lambda _, s: mapped(s, _hashes(_sha256), VARCHAR), cost=350,
             duckdb="sha256({0})", postgresql="encode(sha256(convert_to({0}, 'UTF8')), 'hex')"),
    Function("string_to_array", "string_to_array(s, separator)",
             "The parts between separators as an array; an empty text has none.",
             2, 2, _SPLIT, lambda s, by: (tuple(s.split(by)) if by else (s,)) if s else (), _to_array_columns,
             duckdb="CASE WHEN {0} = '' AND {1} IS NOT NULL THEN CAST([] AS VARCHAR[]) "
                    "WHEN {1} = '' THEN CASE WHEN {0} IS NOT NULL THEN [{0}] END "
                    "WHEN {1} IS NOT NULL THEN string_split({0}, {1}) END",
             postgresql="CASE WHEN {1} IS NOT NULL THEN string_to_array({0}, {1}) END", cost=250),
    Function("split", "split(s, separator)",
             "The parts between separators as an array; an empty text has itself, an empty separator parts characters.",
             2, 2, _SPLIT, lambda s, by: tuple(s.split(by)) if by else tuple(s) or ("",), _split_columns,
             duckdb="CASE WHEN {1} IS NOT NULL THEN string_split({0}, {1}) END",
             postgresql="CASE WHEN {0} = '' AND {1} IS NOT NULL THEN ARRAY[''] "
                        "WHEN {1} = '' THEN string_to_array({0}, NULL) "
                        "WHEN {1} IS NOT NULL THEN string_to_array({0}, {1}) END",
             cost=250, aliases=("string_split", "str_split")),
)  # fmt: skip

# The steps of split_part, for where several parts of a text are asked for: the expression optimizer writes them.
STEPS: Final = (
    Function("@split", "@split(s, separator)", "The parts between separators.", 2, 2,
             fixed(array_of(VARCHAR), VARCHAR, VARCHAR), lambda s, separator: tuple(s.split(separator)),
             lambda _, s, separator: s.str.split(separator), cost=250),
    Function("@part", "@part(parts, n)", "The nth of the parts; from the end if negative.", 2, 2,
             fixed(VARCHAR, array_of(VARCHAR), INT), _nth_part, _part),
)  # fmt: skip
