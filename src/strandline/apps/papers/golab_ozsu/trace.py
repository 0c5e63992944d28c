"""Traces of connections on several links: a generated one with the facts that the paper states, and a recorded one.

The paper's trace is not to be had. Of the generated one, all rows are independent draws: a source from a population of
2,000 per link, one of ten destinations of the source, and a protocol. Every link has one row per unit of time. The
links share a part of their sources, so that joins find matches and a negation ends results early.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

Integers: TypeAlias = npt.NDArray[np.int64]

LINKS: Final = 3
SOURCES: Final = 2_000  # per link
DESTINATIONS: Final = 10  # per source
COMMON: Final = 0.40  # of the sources of a link are on the others, too
PROTOCOLS: Final = ("ftp", "telnet", "smtp", "ftp-data", "nntp", "www", "other")
SHARES: Final = (0.025, 0.0288, 0.46, 0.11, 0.095, 0.072, 0.2092)  # ftp : telnet as in the recorded trace
EXPONENTS: Final = {"ftp": 0.0, "telnet": 0.8}  # of the frequencies of sources, by rank
OTHER_EXPONENT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Link:
    """The rows of a link; row n comes at time n."""

    source: Integers
    destination: Integers
    protocol: npt.NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.source)

    @property
    def pair(self) -> Integers:
        """A number for each pair of source and destination."""
        return self.source * (int(self.destination.max()) + 1) + self.destination

    def first(self, units: int) -> Link:
        return Link(self.source[:units], self.destination[:units], self.protocol[:units])


@dataclass(frozen=True, slots=True)
class Trace:
    """Links of equal length."""

    name: str
    links: tuple[Link, ...]

    @property
    def units(self) -> int:
        return len(self.links[0])

    def first(self, units: int) -> Trace:
        return Trace(self.name, tuple(link.first(units) for link in self.links))


def generate(units: int, seed: int = 1) -> Trace:
    draw = np.random.Generator(np.random.PCG64(seed))
    links = []
    for number in range(LINKS):
        # The source of a rank is that of the first link, or one that only this link has.
        own = np.arange(SOURCES) + (number * SOURCES if number else 0)
        population = np.where(draw.random(SOURCES) < COMMON, np.arange(SOURCES), own) if number else own
        protocol = draw.choice(np.array(PROTOCOLS), units, p=SHARES)
        rank = np.empty(units, np.int64)
        for name in PROTOCOLS:
            rows = protocol == name
            weights = np.arange(1, SOURCES + 1) ** -EXPONENTS.get(name, OTHER_EXPONENT)
            rank[rows] = draw.choice(SOURCES, int(rows.sum()), p=weights / weights.sum())
        source = population[rank]
        destination = number * DESTINATIONS + draw.integers(0, DESTINATIONS, units)
        links.append(Link(source, destination, protocol))
    return Trace("generated trace", tuple(links))


def read(path: Path) -> Trace:
    """The recorded trace, LBL-TCP-3: a link gets the connections whose destination has its remainder. The n-th
    connection of a link is its row n, so that links have one row per unit."""
    rows = pl.read_parquet(path).sort("event_time", maintain_order=True)
    local, remote, outgoing = pl.col("local_host"), pl.col("remote_host") + 1_000_000, pl.col("local_originated")
    rows = rows.select(
        pl.when(outgoing).then(local).otherwise(remote).cast(pl.Int64).alias("source"),
        pl.when(outgoing).then(remote).otherwise(local).cast(pl.Int64).alias("destination"),
        "protocol",
    )
    parts = [rows.filter(pl.col("destination") % LINKS == number) for number in range(LINKS)]
    links = [
        Link(part["source"].to_numpy(), part["destination"].to_numpy(), part["protocol"].to_numpy().astype(np.str_))
        for part in parts
    ]
    return Trace("recorded trace (LBL-TCP-3)", tuple(links)).first(min(len(link) for link in links))
