"""Random queries with window functions over the past of a stream, and streams for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Final

from strandline.functions.pair_aggregates import PAIR_AGGREGATES
from strandline.logical.expressions import Value
from support import Arrivals, arrange
from vocabulary import LETTERS

NUMBERS: Final = ("i", "b", "d", "m")
LETTERS_OF_STREAM: Final = ("i", "s", "b", "d", "m")
FRAMED: Final = ("COUNT", "SUM", "AVG", "MIN", "MAX", "STDDEV_SAMP", "VAR_POP")
# Aggregates that need all values of a frame, over frames by time alone.
OF_VALUES: Final = (
    "MEDIAN({0})",
    "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY {0})",
    "MODE() WITHIN GROUP (ORDER BY {0})",
    "BOOL_OR({0} > 0)",
    "FIRST({0} ORDER BY {1})",
    "MAX_BY({0}, {1})",
    "STRING_AGG(s, '|' ORDER BY s)",
    "COUNT_IF({0} > 0)",
    "tally(i)",
)


def over_stream(dice: Random, most: int = 14) -> Arrivals:
    """A stream of up to so many rows that often come together, in few partitions."""
    rows: list[tuple[int, int, tuple[Value, ...]]] = []
    for _ in range(dice.randint(most // 4, most)):
        payload = (
            dice.choice((0, 1, 1, 2, None)),
            dice.choice(("a", "b", "b", None)),
            dice.choice((1, 7, 2**63 - 1, None)),
            dice.choice((0.0, 1.5, 0.1, -3.0, 1e308, float("nan"), float("inf"), None)),
            dice.choice((Decimal("0.01"), Decimal("1.01"), Decimal("-2.50"), None)),
        )
        rows.append((dice.randint(-3, most - 2), dice.randint(0, 6), payload))
    return arrange("s0", {letter: LETTERS[letter] for letter in LETTERS_OF_STREAM}, rows, dice.choice((0, 0, 1, 6)))


@dataclass(frozen=True)
class Window:
    """The text of a window, and whether it is ordered by time alone."""

    text: str
    by_time: bool


class OverQueries:
    """Draws queries over a stream with columns of these letters and the time column ts."""

    def __init__(self, dice: Random, letters: Sequence[str] = LETTERS_OF_STREAM) -> None:
        self.dice, self.letters, self.stream = dice, letters, "s0"

    def query(self) -> str:
        dice = self.dice
        windows = [self.window() for _ in range(dice.choice((1, 1, 1, 2)))]
        waits = dice.random() < 0.3
        calls = [
            self.call(windows[n % len(windows)], windows[0], waits=waits and n == 0, alone=not waits)
            for n in range(dice.randint(1, 4))
        ]
        columns = dice.sample(("ts", *self.letters), dice.randint(1, 2))
        listed = ", ".join([*columns, *(f"{call} AS f{n}" for n, call in enumerate(calls))])
        where = f" WHERE {dice.choice(self.letters)} IS NOT NULL" if dice.random() < 0.2 else ""
        qualify = ""
        if dice.random() < 0.2:
            qualify = f" QUALIFY {dice.choice(('f0 IS NOT NULL', f'ROW_NUMBER() OVER ({windows[0].text}) <= 2'))}"
        clause = f" WINDOW w AS ({windows[0].text})" if any(" OVER w" in c or "(w " in c for c in calls) else ""
        before, source = self.source()
        text = f"SELECT {listed} FROM {source}{where}{clause}{qualify}"
        if dice.random() < 0.8:
            return before + text
        key = columns[0]
        if dice.random() < 0.5:
            return f"{before}SELECT {key}, f0 FROM ({text}) AS q WHERE {key} IS NOT NULL"
        counts = "COUNT(*) AS n, COUNT(f0) AS f"
        return f"{before}SELECT {key}, {counts} FROM ({text}) AS q WINDOW(RANGE 5 MICROSECONDS) GROUP BY {key}"

    def source(self) -> tuple[str, str]:
        """What comes before a query, and what it reads: the stream, or a query that makes points of it."""
        dice, stream = self.dice, self.stream
        listed = ", ".join([*self.letters, "ts"])
        every = f"SELECT {listed} FROM {stream}"
        letter = dice.choice(self.letters)
        match dice.choice(("stream", "stream", "stream", "query", "union", "name", "asof", "unnest", "grouped")):
            case "query":
                return "", f"({every} WHERE {letter} IS NOT NULL) AS x"
            case "union":
                return "", f"({every} WHERE {letter} IS NULL UNION ALL {every} WHERE {letter} IS NOT NULL) AS x"
            case "name" if dice.random() < 0.5:
                return f"CREATE STREAM v1 AS {every};\n", "v1"
            case "name":
                return f"WITH v1 AS ({every}) ", "v1 AS x"
            case "asof":
                chosen = ", ".join(f"x.{c}" for c in (*self.letters, "ts"))
                on = f"x.{letter} = y.{letter} AND x.ts > y.ts"
                return "", f"(SELECT {chosen} FROM {stream} x ASOF LEFT JOIN {stream} y ON {on}) AS x"
            case "unnest":
                chosen = ", ".join(f"x.{c}" for c in (*self.letters, "ts"))
                return "", f"(SELECT {chosen} FROM {stream} x CROSS JOIN UNNEST(ARRAY[1, 2]) AS y(e)) AS x"
            case "grouped":
                least = ", ".join(f"MAX({c}) AS {c}" for c in self.letters if c != letter)
                return "", f"(SELECT {letter}, {least}, ts FROM {stream} GROUP BY {letter}, ts) AS x"
        return "", stream

    def window(self) -> Window:
        dice = self.dice
        keys = dice.sample(self.letters, dice.choice((0, 1, 1, 1, 2)))
        partition = f"PARTITION BY {', '.join(keys)} " if keys else ""
        further = dice.sample(self.letters, dice.choice((0, 0, 0, 1)))
        order = "".join(f", {key}{dice.choice(('', ' DESC', ' NULLS FIRST'))}" for key in further)
        return Window(f"{partition}ORDER BY ts{order}", not further)

    def over(self, window: Window, named: Window, frame: str = "") -> str:
        if window == named and self.dice.random() < 0.4:
            return f"OVER (w {frame})" if frame else "OVER w"
        return f"OVER ({window.text}{' ' if frame else ''}{frame})"

    def call(self, window: Window, named: Window, *, waits: bool, alone: bool) -> str:
        """A call; `alone` if no other one of the query waits for later rows."""
        dice = self.dice
        value = dice.choice(self.letters)
        if waits and dice.random() < 0.7:
            offset = dice.choice(("", ", 1", ", 2", ", 3", f", 1, {value}"))
            return f"LEAD({value}{offset}) {self.over(window, named)}"
        match dice.randint(0, 8):
            case 0 if not waits:
                offset = dice.choice(("", ", 0", ", 2", ", 3", f", 1, {value}"))
                return f"LAG({value}{offset}){self.nulls()} {self.over(window, named)}"
            case 1 | 2 if not waits:
                return f"{dice.choice(('ROW_NUMBER', 'RANK', 'DENSE_RANK'))}() {self.over(window, named)}"
            case 3 | 4:
                name = dice.choice(("FIRST_VALUE({0})", "LAST_VALUE({0})", "NTH_VALUE({0}, 1)", "NTH_VALUE({0}, 2)"))
                frame = self.frame(window, waits=waits)
                nulls = "" if frame.endswith("MICROSECONDS PRECEDING") else self.nulls()
                return f"{name.format(value)}{nulls} {self.over(window, named, frame)}"
            case 5 if not waits and window.by_time and set(LETTERS_OF_STREAM) <= set(self.letters):
                return f"{self.aggregate_of_values()} {self.over(window, named, self.frame_by_time(window))}"
            case 6 if alone and dice.random() < 0.3:  # the rows of an instant
                return f"{self.aggregate()} OVER ({dice.choice(('', f'PARTITION BY {value}'))})"
            case _:
                return f"{self.aggregate()} {self.over(window, named, self.frame(window, waits=waits))}"

    def nulls(self) -> str:
        return self.dice.choice(("", "", " RESPECT NULLS", " IGNORE NULLS"))

    def aggregate(self) -> str:
        dice = self.dice
        numbers = [letter for letter in NUMBERS if letter in self.letters]
        name = dice.choice((*FRAMED, "COUNT(*)", "pair"))
        if name == "COUNT(*)":
            call = name
        elif name == "pair":
            call = f"{dice.choice(sorted(PAIR_AGGREGATES)).upper()}({dice.choice(numbers)}, {dice.choice(numbers)})"
        else:
            call = f"{name}({dice.choice(self.letters if name in ('COUNT', 'MIN', 'MAX') else numbers)})"
        return call + self.filter()

    def aggregate_of_values(self) -> str:
        return self.dice.choice(OF_VALUES).format(*self.dice.sample(NUMBERS, 2)) + self.filter()

    def filter(self) -> str:
        numbers = [letter for letter in NUMBERS if letter in self.letters]
        return f" FILTER (WHERE {self.dice.choice(numbers)} > 0)" if self.dice.random() < 0.2 else ""

    def frame(self, window: Window, *, waits: bool) -> str:
        dice = self.dice
        start = dice.randint(0, 4)
        if waits:
            return f"ROWS BETWEEN {dice.choice(('UNBOUNDED', str(start)))} PRECEDING AND {dice.randint(1, 2)} FOLLOWING"
        if dice.random() < 0.2:
            return ""
        if dice.random() < 0.5:
            end = dice.choice((0, 0, 1, start))
            last = f"{end} PRECEDING" if end else "CURRENT ROW"
            first = dice.choice(("UNBOUNDED", str(max(start, end))))
            return dice.choice((f"ROWS BETWEEN {first} PRECEDING AND {last}", f"ROWS {first} PRECEDING"))
        return self.frame_by_time(window)

    def frame_by_time(self, window: Window) -> str:
        dice = self.dice
        if dice.random() < 0.1:
            return "RANGE CURRENT ROW"
        if not window.by_time:
            return "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        end = dice.choice((0, 0, 2))
        last = f"{end} MICROSECONDS PRECEDING" if end else "CURRENT ROW"
        first = dice.choice(("UNBOUNDED", f"INTERVAL '{max(dice.randint(0, 4), end)} microseconds'"))
        return f"RANGE BETWEEN {first} PRECEDING AND {last}"
