"""`strandline init`: an example project to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from strandline.core.errors import StrandlineError

SCRIPT: Final = "market.sql"

_SQL: Final = """\
-- Trades arrive as files, up to two seconds out of order.
CREATE STREAM trades (sym VARCHAR, price DOUBLE, qty INT, ts TIMESTAMP)
  SOURCE file('data/trades-*.csv') ORDERED BY ts WITHIN 2 SECONDS;

-- Some symbols are watched, each from one instant until another.
CREATE STREAM watched (sym VARCHAR, since TIMESTAMP, until TIMESTAMP)
  SOURCE file('data/watched.csv') VALID FROM since UNTIL until;

-- How much was traded in the last ten minutes, per symbol, at every instant?
CREATE STREAM volume AS
  SELECT sym, COUNT(*) AS trades, SUM(qty) AS shares, MAX(price) AS highest
    FROM trades WINDOW(RANGE 10 MINUTES)
   GROUP BY sym;

-- The same for the symbols that are being watched.
CREATE STREAM watched_volume AS
  SELECT v.sym, v.trades, v.shares
    FROM volume v JOIN watched w ON v.sym = w.sym;
"""

_README: Final = """\
# A first project with strandline

- `market.sql`: two streams and two continuous queries over them
- `data/`: an hour of trades in three files, and the symbols that are watched

```sh
strandline shell --init market.sql           # explore: .start volume, or any SELECT
strandline run market.sql --out results      # results of all queries as Parquet files
strandline explain market.sql                # show the plans
```

To follow a directory that fills up, write `file('data/trades-*.csv', follow => true)`.
"""

_WATCHED: Final = """\
sym,since,until
ACME,2024-01-02 09:00:00,2024-01-02 09:30:00
HELIX,2024-01-02 09:15:00,2024-01-02 10:00:00
ACME,2024-01-02 09:45:00,
"""

_SYMBOLS: Final = ("ACME", "NOVA", "HELIX", "ORBIT")
_TRADES: Final = 360
_FILES: Final = 3


def write_project(directory: Path) -> list[str]:
    """Write the project; returns the next commands. Existing files are not touched."""
    files = {SCRIPT: _SQL, "README.md": _README, "data/watched.csv": _WATCHED, **_trades()}
    for name in files:
        if (directory / name).exists():
            raise StrandlineError(
                f"{directory / name} already exists",
                code="file-exists",
                hint="Choose another directory: strandline init name.",
            )
    try:
        for name, text in files.items():
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise StrandlineError(
            f"cannot write the directory {directory}", code="file-unwritable", detail=str(error)
        ) from None
    go = "" if directory.resolve() == Path.cwd() else f"cd {directory} && "
    return [f"{go}strandline shell --init {SCRIPT}", f"{go}strandline run {SCRIPT} --out results"]


def _trades() -> dict[str, str]:
    """An hour of trades every ten seconds, prices that wander, a few rows out of order. No chance: always the same."""
    head = "sym,price,qty,ts\n"
    prices = [100.0, 40.0, 250.0, 12.0]
    rows = []
    for number in range(_TRADES):
        drawn = (number * 2_654_435_761 >> 7) & 0xFFFF  # a large odd step: looks random, repeats late
        symbol = drawn % len(_SYMBOLS)
        prices[symbol] *= 1 + ((drawn >> 4) % 201 - 100) / 20_000
        second = number * 10 - (1 if number % 7 == 3 else 0)
        at = f"2024-01-02 {9 + second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        rows.append(f"{_SYMBOLS[symbol]},{prices[symbol]:.2f},{10 * (1 + drawn % 30)},{at}\n")
    size = _TRADES // _FILES
    return {f"data/trades-{n + 1}.csv": head + "".join(rows[n * size : (n + 1) * size]) for n in range(_FILES)}
