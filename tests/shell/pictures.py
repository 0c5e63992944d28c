"""The picture of the shell in the README, from a real run: `make pictures`.

Types into the shell in a pseudo-terminal, takes the screen as a terminal would show it, and writes it as SVG.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

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
    """The screen with its colours."""
    console = Console(record=True, width=COLUMNS, file=open("/dev/null", "w"), force_terminal=True)  # noqa: SIM115
    lines = terminal.text().count("\n") + 1
    for number in range(lines):
        console.print(_line(terminal, number), no_wrap=True, soft_wrap=True)
    return console.export_svg(title="strandline shell")


def _line(terminal: Terminal, number: int) -> Text:
    row, line = terminal.screen.buffer[number], Text()
    for column in range(COLUMNS):
        sign = row[column]
        line.append(sign.data, style=_style(sign.fg, sign.bg, sign.bold, sign.reverse))
    return line


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
