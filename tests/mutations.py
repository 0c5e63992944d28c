"""Texts that are almost queries: the queries of the tests and of the pages, damaged as texts get damaged.

A seed is a text with the declarations that it stands behind. `mutated` throws dice of the type `Random`, so that a
number names a text for ever, as long as the seeds stay as they are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"


@dataclass(frozen=True)
class Seed:
    """A text, and the statements before it that declare what it reads."""

    declarations: str
    text: str


@cache
def seeds() -> tuple[Seed, ...]:
    """The queries of the golden files, of the oracle and of the pages, and some that are written at random."""
    found = [*_of_golden_files(), *_of_language_cases(), *_of_pages(), *_of_oracle(), *_of_dice()]
    assert len(found) > 500, "the texts are where they were"
    return tuple(found)


def _of_golden_files() -> list[Seed]:
    found = []
    for path in sorted((HERE / "queries").glob("*.case")):
        streams, *parts = path.read_text().split("\n-- ")
        queries = [part.partition("\n")[2].partition("\n----")[0] for part in parts]
        found += [Seed(streams, query) for query in queries]
    return found


def _of_language_cases() -> list[Seed]:
    found = []
    source = (HERE / "sql" / "test_binder.py").read_text()
    [script] = re.findall(r'^SCRIPT = """(.*?)"""', source, re.MULTILINE | re.DOTALL)
    for path in sorted((HERE / "sql" / "cases").glob("*.case")):
        for part in re.split(r"^-- .*\n", path.read_text(), flags=re.MULTILINE)[1:]:
            text = part.partition("\n----")[0]
            is_expression = path.stem in ("expressions", "scalars")
            found.append(Seed(script, f"SELECT {text} AS x FROM s" if is_expression else text))
    return found


def _of_pages() -> list[Seed]:
    pages = "\n".join(path.read_text() for path in sorted(DOCS.glob("*.md")))
    return [Seed("", text) for text in re.findall(r"^```sql \w+\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)]


def _of_oracle() -> list[Seed]:
    from test_duckdb_oracle import QUERIES, STREAMS

    declared = ";".join(f"CREATE STREAM {name} ({cs}) SOURCE rows() ORDERED BY ts" for name, cs in STREAMS.items())
    return [Seed(declared, text if isinstance(text, str) else text[0]) for text in QUERIES.values()]


def _of_dice() -> list[Seed]:
    from strategies import question

    found = []
    for number in range(300):
        asked = question(Random(number))
        declared = ""
        for stream in asked.streams:
            columns = ", ".join(f"{name} {kind}" for name, kind in stream.columns)
            declared += f"CREATE STREAM {stream.name} ({columns}) SOURCE rows() ORDERED BY ts;"
        found.append(Seed(declared, asked.text))
    return found


# ---- damage ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(r"\s+|\w+|'[^']*'|\"[^\"]*\"|<>|<=|>=|=>|::|\|\||.", re.DOTALL)

# Letters that change their length or their kind when a program folds their case, digits that are not 0 to 9, blanks
# that look like nothing, marks that turn the writing round, and what ends a text in other languages.
STRANGE = [
    "\0", "\x01", "\x1a", "\x7f", "\x85", "\u00a0", "\u200b", "\u2028", "\u202e", "\ufeff", "\ud800", "\udfff",
    "é", "e\u0301", "ß", "ſ", "ı", "İ", "K", "ﬁ", "٣", "²", "Ⅷ", "Ａ", "ＳＥＬＥＣＴ", "😀", "\u200d", "\U0010ffff",
    "`", "“", "’", "\\", "\\'", "{", "}", "$1", "?", "@x", "#", "~", "^", "&", "|", "!",
]  # fmt: skip
HUGE = [
    "9" * 40, "9" * 5_000, "1e999", "1e-999", "0." + "0" * 400 + "1", "1" + "0" * 308 + ".5", "." * 50, "1.2.3",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e400000000", "0x10", "1_000", "00", "1e",
    "'" + "x" * 70_000 + "'", '"' + "n" * 70_000 + '"', "'9999999-99-99'", "DATE '0000-00-00'", "INTERVAL '9' YEAR",
    "TIMESTAMP '2024-02-30 25:61:61'", "DECIMAL(99,98)", "DECIMAL(-1)", "CAST('' AS DECIMAL(38,38))",
]  # fmt: skip
PIECES = [
    *"()[],;.'\"*+-/=%<>\n\t", "::", "<>", "=>", "||", "--", "/*", "*/", "1", "0", "-1", "1.5", "a", "s", "x", "''",
    "NOT", "NULL", "INTERVAL", "RANGE", "AS", "CASE", "WHEN", "THEN", "ELSE", "END", "FROM", "WHERE", "IN", "ON",
    "USING", "GROUP", "BY", "HAVING", "SELECT", "DISTINCT", "UNION", "ALL", "EXCEPT", "INTERSECT", "STRICT", "MAX",
    "JOIN", "LEFT", "FULL", "SEMI", "ANTI", "CROSS", "NATURAL", "OUTER", "EXISTS", "ANY", "SOME", "BETWEEN", "LIKE",
    "ESCAPE", "IS", "TRUE", "AND", "OR", "WINDOW", "ROWS", "SLIDE", "PARTITION", "NOW", "SECONDS", "MICROSECONDS",
    "CREATE", "STREAM", "SOURCE", "ORDERED", "WITHIN", "IDLE", "AFTER", "DROP", "EXPLAIN", "FILTER", "CAST",
    "EXTRACT", "COUNT", "SUM", "AVG", "MIN", "COALESCE", "ts", "rows", "file", "rate", "valid_from",
    "ISTREAM", "DSTREAM", "RSTREAM", "GRANULARITY", "SESSION", "UNBOUNDED", "ORDER", "LIMIT", "FETCH", "FIRST", "TIES",
    "WITH", "VIEW", "REPLACE", "CASCADE", "SHOW", "DESCRIBE", "ROLLUP", "CUBE", "GROUPING", "SETS", "WITHIN GROUP",
    "COUNT(*)", "ORDER BY 1", "LIMIT 1", "WINDOW(RANGE 1 SECOND)", "[ROWS 2]", "(SELECT 1)", "SUM(SUM(1))", "a.b.c.d",
]  # fmt: skip

_KEYWORDS = frozenset(word for word in PIECES if word.isupper())

NESTS: list[tuple[str, str]] = [
    ("(", ")"), ("NOT ", ""), ("- ", ""), ("abs(", ")"), ("CASE WHEN TRUE THEN ", " END"), ("CAST(", " AS INT)"),
    ("(SELECT * FROM ", ") AS n"), ("[", "]"), ("1 + (", ")"), ("EXISTS (SELECT 1 FROM ", ")"), ("COALESCE(1, ", ")"),
    ("/*", "*/"), ("EXPLAIN ", ""), ("x IN (SELECT x FROM s WHERE ", ")"), ("", " IS NULL"), ("", "::INT"), ("", "[1]"),
]  # fmt: skip
CHAINS = [" + 1", " AND TRUE", " OR x = 1", " || 'x'", ", x", ", s", " UNION ALL SELECT 1 FROM s", " JOIN s USING (ts)"]
CHAINS += [" BETWEEN 1 AND 2", " IS NOT TRUE", " WHEN 1 THEN 2", ";", " EXCEPT SELECT x FROM s", " AS x", ".x", " - -1"]


def _delete(words: list[str], dice: Random) -> None:
    start = dice.randrange(len(words))
    del words[start : start + dice.choice((1, 1, 2, 5))]


def _double(words: list[str], dice: Random) -> None:
    start = dice.randrange(len(words))
    part = words[start : start + dice.choice((1, 2, 6, 20))]
    words[start:start] = part * dice.choice((1, 1, 2, 9))


def _swap(words: list[str], dice: Random) -> None:
    one, two = dice.randrange(len(words)), dice.randrange(len(words))
    words[one], words[two] = words[two], words[one]


def _replace(words: list[str], dice: Random) -> None:
    others = _words(dice.choice(seeds()).text)
    words[dice.randrange(len(words))] = dice.choice((dice.choice(others or ["x"]), dice.choice(PIECES)))


def _insert(words: list[str], dice: Random) -> None:
    piece = dice.choice(dice.choice((PIECES, PIECES, STRANGE, HUGE)))
    words.insert(dice.randrange(len(words) + 1), dice.choice((piece, f" {piece} ")))


def _exchange(words: list[str], dice: Random) -> None:
    """A name for a name, a number for a number, a symbol for a symbol."""
    others = _words(dice.choice(seeds()).text)
    _exchange_with([*words, *others], words, dice)


def _shuffle(words: list[str], dice: Random) -> None:
    """The same with what the text has itself, keywords aside: what comes out is often a query, but of other types."""
    _exchange_with(words, words, dice, ("blank", "keyword", *"()[],;."))


def _exchange_with(others: list[str], words: list[str], dice: Random, but: tuple[str, ...] = ("blank",)) -> None:
    places = [at for at, word in enumerate(words) if _kind(word) not in but]
    if places:
        at = dice.choice(places)
        words[at] = dice.choice([word for word in others if _kind(word) == _kind(words[at])])


def _graft(words: list[str], dice: Random) -> None:
    """What stands in parentheses, over something else that stands in parentheses."""
    here, there = _groups(words), _groups(others := _words(dice.choice(seeds()).text))
    if not here:
        return
    start, end = dice.choice(here)
    if there and dice.random() < 0.5:
        from_start, from_end = dice.choice(there)
        words[start:end] = others[from_start:from_end]
    else:
        from_start, from_end = dice.choice(here)
        words[start:end] = words[from_start:from_end]


def _groups(words: list[str]) -> list[tuple[int, int]]:
    found, opened = [], []
    for at, word in enumerate(words):
        if word == "(":
            opened.append(at)
        elif word == ")" and opened:
            found.append((opened.pop(), at + 1))
    return found


def _kind(word: str) -> str:
    if word.upper() in _KEYWORDS:
        return "keyword"
    first = word[0]
    if first.isspace():
        return "blank"
    if first in "()[],;.":
        return first
    return "name" if first.isalpha() else "number" if first.isdigit() else "text" if first in "'\"" else "symbol"


def _fold(words: list[str], dice: Random) -> None:
    at = dice.randrange(len(words))
    words[at] = dice.choice((str.swapcase, str.upper, str.title, str.strip))(words[at])


def _cut(words: list[str], dice: Random) -> None:
    text = "".join(words)
    at = dice.randrange(len(text) + 1)
    words[:] = [text[:at] if dice.random() < 0.5 else text[at:]]


def _splice(words: list[str], dice: Random) -> None:
    """The beginning of this and the end of another."""
    others = _words(dice.choice(seeds()).text)
    words[dice.randrange(len(words)) :] = others[dice.randrange(len(others) + 1) :]


def _noise(words: list[str], dice: Random) -> None:
    """Characters of any kind over some place."""
    at = dice.randrange(len(words))
    words[at] = "".join(chr(dice.choice((dice.randrange(128), dice.randrange(0x110000)))) for _ in range(4))


def _nest(words: list[str], dice: Random) -> None:
    before, after = dice.choice(NESTS)
    levels = dice.choice((1, 2, 5, 30, 90, 400, 3_000))
    start = dice.randrange(len(words))
    end = min(len(words), start + dice.choice((1, 1, 3, 9)))
    kept = levels if dice.random() < 0.8 else levels - 1  # now and then one is not closed
    words[start:end] = [before * levels, *words[start:end], after * kept]


def _chain(words: list[str], dice: Random) -> None:
    words.insert(dice.randrange(len(words) + 1), dice.choice(CHAINS) * dice.choice((1, 3, 30, 150, 1_000)))


_GENTLE = [_shuffle, _shuffle, _shuffle, _exchange, _graft]
_ROUGH = [_exchange, _graft, _delete, _double, _swap, _replace, _insert, _fold, _splice]
_RARE = [_cut, _noise, _nest, _chain]


def _words(text: str) -> list[str]:
    return _TOKEN.findall(text)


def mutated(number: int) -> Seed:
    """The text with this number: a seed after one to four kinds of damage."""
    dice = Random(number)
    seed = dice.choice(seeds())
    return Seed(seed.declarations, damaged(seed.text, dice))


def damaged(text: str, dice: Random) -> str:
    """The text after one to four kinds of damage."""
    gentle = dice.random() < 0.5
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        damage = dice.choice(_RARE if dice.random() < 0.15 else _GENTLE if gentle else _ROUGH)
        if words := _words(text):
            damage(words, dice)
        text = "".join(words)
    return text
