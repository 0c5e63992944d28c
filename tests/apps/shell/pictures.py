"""The picture of the shell in the README, from a real run: `make pictures`.

Types into the shell in a pseudo-terminal, takes the screen as a terminal would show it, and writes it as SVG.
"""

from __future__ import annotations

import io
import re
import tempfile
from itertools import groupby
from pathlib import Path

from pyte.screens import Char
from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text
from terminal import ROOT, Terminal, shell

PICTURE = ROOT / "docs" / "images" / "shell.svg"
ROWS, COLUMNS = 26, 104
SECONDS = 60.0

STREAM = (
    "CREATE STREAM trades (key INT, random DOUBLE, ts TIMESTAMP)",
    "  SOURCE rate(rows_per_second => 2000, keys => 6) ORDERED BY ts;",
)
ERROR = "SELECT kye FROM trades;"
QUERY = (
    "SELECT key AS stock, COUNT(*) AS trades, AVG(random) AS mean, MAX(random) AS highest",
    "  FROM trades WINDOW(RANGE 5 SECONDS) GROUP BY key;",
)


def main() -> None:
    with tempfile.TemporaryDirectory() as state:
        terminal = shell("--engine", "local", state=Path(state), cwd=ROOT, rows=ROWS, columns=COLUMNS)
        try:
            _play(terminal)
            PICTURE.parent.mkdir(exist_ok=True)
            PICTURE.write_text(as_svg(terminal))
        finally:
            terminal.close()
    print(f"{PICTURE.relative_to(ROOT)} written")


def _play(terminal: Terminal) -> None:
    terminal.until("ready", SECONDS)
    for line in STREAM:
        terminal.type(line)
    terminal.until("trades is declared", SECONDS)
    terminal.type(ERROR)
    terminal.until("Did you mean", SECONDS)
    for line in QUERY:
        terminal.type(line)
    # Late enough for the window to be full, and the rates to be steady.
    terminal.until(lambda text: "6 rows" in text and "state 10,0" in text and "2,00" in text, SECONDS)


def as_svg(terminal: Terminal) -> str:
    """The screen with its colours, in whatever fixed font the reader has: nothing is fetched from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False)
    for number in range(terminal.text().count("\n") + 1):
        console.print(_line(terminal, number), no_wrap=True, soft_wrap=True)
    frame = re.sub(r"\s*@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    return console.export_svg(title="strandline shell", code_format=frame)


def _line(terminal: Terminal, number: int) -> Text:
    row = terminal.screen.buffer[number]
    signs = [(row[column].data, _style(*_look(row[column]))) for column in range(COLUMNS)]
    line = Text()
    for style, run in groupby(signs, key=lambda sign: sign[1]):
        line.append("".join(data for data, _ in run), style=style)
    return line


def _look(sign: Char) -> tuple[str, str, bool, bool]:
    return sign.fg, sign.bg, sign.bold, sign.reverse


def _style(front: str, back: str, bold: bool, reverse: bool) -> str:
    parts = ["bold"] if bold else []
    parts += ["reverse"] if reverse else []
    parts += [_colour(front)] if front != "default" else []
    parts += [f"on {_colour(back)}"] if back != "default" else []
    return " ".join(parts)


def _colour(name: str) -> str:
    """A colour of the terminal in the words of the painter."""
    if len(name) == 6 and all(sign in "0123456789abcdef" for sign in name):
        return f"#{name}"
    return {"brown": "yellow", "brightblack": "bright_black", "brightbrown": "bright_yellow"}.get(name, name)


if __name__ == "__main__":
    main()
