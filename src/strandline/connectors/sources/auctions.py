"""NEXMark generator: every column of every event, computed from the event's number.

Events 0, 1, 2, … are people who register, auctions that open and bids on them, 1 : 3 : 46 in every fifty. There is no
state between events: a column is drawn by a hash of (seed, event, column), so any range of events can be made anywhere,
alone, and is the same. Distributions are those of the benchmark: half of all bids go to one hot auction, three quarters
come from one hot bidder, and some name an auction or a person that is created a little later.

Texts are picked from pools, and powers are looked up: both are array code, and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from strandline.core.temporal import MILLISECOND, Instant
from strandline.core.types import BIGINT, TIMESTAMP, VARCHAR, Type
from strandline.runtime.kernels.hashing import Hashes, mix

Numbers: TypeAlias = npt.NDArray[np.int64]

EPOCH: Final = 50  # events: one person, three auctions, then bids
PEOPLE, AUCTIONS = 1, 3
FIRST_ID: Final = 1000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT: Final = 100  # one in this many persons or auctions is hot
HOT_AUCTION_RATIO, HOT_SELLER_RATIO, HOT_BIDDER_RATIO = 2, 4, 4  # all but one in this many draws are hot
ACTIVE_PEOPLE: Final = 1000
IN_FLIGHT: Final = 100  # auctions
LEAD: Final = 10  # number of future persons or auctions that may be named
AHEAD: Final = IN_FLIGHT * EPOCH // AUCTIONS  # events that a usual auction lasts
SHUFFLE: Final = 953

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
CITIES = (
    "Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent", "Cheyenne"
)  # fmt: skip
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
CHANNELS: Final = 10_000
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100
POOL: Final = 2**14  # texts of a kind
LONGEST: Final = 640  # characters of a filler


# ---- pools: made once per process ------------------------------------------------------------------------------------


@cache
def _powers() -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """10^(6k / 2^12) and 10^(6k / 2^24), each rounded once: exponentials differ from machine to machine, not these."""
    whole = [float(Decimal(10) ** (Decimal(6 * k) / 2**12)) for k in range(2**12)]
    parts = [float(Decimal(10) ** (Decimal(6 * k) / 2**24)) for k in range(2**12)]
    return np.array(whole), np.array(parts)


@cache
def _names() -> pl.Series:
    return pl.Series([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])


def _random_bits(seed: int, what: int, count: int) -> Hashes:
    start = mix(np.array([seed % 2**64], dtype=np.uint64)) + np.uint64(what << 40)
    return mix(mix(np.arange(count, dtype=np.uint64) + start))


def _characters(seed: int, what: int, rows: int, width: int, blanks: bool) -> pl.Series:
    """Texts of one width: letters, and a blank in one of thirteen places if there are any."""
    bits = _random_bits(seed, what, rows * -(-width // 4)).view(np.uint16).reshape(rows, -1)[:, :width]
    letters = (ord("a") + (bits.astype(np.uint32) * 26 >> 16)).astype(np.uint8)
    if blanks:
        letters[bits % 13 == 0] = ord(" ")
    offsets = np.arange(rows + 1, dtype=np.int64) * width
    text = pa.LargeStringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters.tobytes()))
    return pl.Series(text)


def _cut(texts: pl.Series, seed: int, what: int, min_length: int, below: int) -> pl.Series:
    """The beginnings of texts, with a length from `min_length` to `below` each."""
    length = min_length + _random_bits(seed, what, len(texts)) % np.uint64(below - min_length)
    return texts.str.slice(0, pl.Series(length))


@cache
def _words(seed: int, what: int, width: int) -> pl.Series:
    """Texts of 3 to `width` - 1 letters and blanks, without blanks at the ends."""
    return _cut(_characters(seed, what, POOL, width, blanks=True), seed, what + 500, 3, width).str.strip_chars(" ")


@cache
def _letters(seed: int, what: int) -> pl.Series:
    return _characters(seed, what, POOL // 8, LONGEST, blanks=False)


@cache
def _bid_fillers(seed: int) -> pl.Series:
    missing = BID_BYTES - 32
    around = round(0.2 * missing)
    return _cut(
        _characters(seed, 25, POOL, missing + around, blanks=False), seed, 525, missing - around, missing + around
    )


@cache
def _channels(seed: int) -> tuple[pl.Series, pl.Series]:
    """Names and addresses of all channels, the hot ones last. Nine of ten cold addresses contain an id."""
    count = CHANNELS + len(HOT_CHANNELS)
    parts = [
        _cut(_characters(seed, what, count, 5, blanks=True), seed, what + 500, 3, 5).str.replace_all(" ", "_")
        for what in (31, 32, 33)
    ]
    has_id = _random_bits(seed, 34, CHANNELS) % np.uint64(10) > 0
    ids = [f"&channel_id={_reversed(i)}" if has_id[i] else "" for i in range(CHANNELS)] + [""] * len(HOT_CHANNELS)
    address = pl.concat_str(
        pl.lit("https://www.nexmark.com/"),
        pl.concat_str((part.alias(f"p{n}") for n, part in enumerate(parts)), separator="/"),
        pl.lit("/item.htm?query=1"),
        pl.Series("id", ids),
    )
    return pl.Series([*(f"channel-{i}" for i in range(CHANNELS)), *HOT_CHANNELS]), pl.select(address).to_series()


def _reversed(number: int) -> int:
    """The 32 bits of a number in the opposite order, as a signed number without its sign."""
    turned = int(f"{number:032b}"[::-1], 2)
    return abs(turned - 2**32 if turned >= 2**31 else turned)


# ---- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EventSequence:
    """One sequence of events: its seed, how many events a second has, when it starts, and how far it is shuffled."""

    seed: int
    rate: Fraction
    start: Instant
    disorder: int = 1

    def arriving(self, begin: int, end: int) -> Numbers:
        """The events in order of arrival: in groups of `disorder`, each group in another order, always the same."""
        number = np.arange(begin, end, dtype=np.int64)
        if self.disorder == 1:
            return number
        return number // self.disorder * self.disorder + number * SHUFFLE % self.disorder

    def time(self, event: Numbers) -> Numbers:
        """The time of an event in microseconds, in whole milliseconds: at high rates several events share one."""
        return self.start + event * (1000 * self.rate.denominator) // self.rate.numerator * MILLISECOND

    @property
    def disorder_us(self) -> int:
        """No event comes later than one that is newer by more than this."""
        span = (self.disorder - 1) * 1000 * self.rate.denominator
        return -(-span // self.rate.numerator) * MILLISECOND

    def rate_of(self, kind: str) -> float:
        """Events of a kind in a second."""
        return float(self.rate) * PER_EPOCH[kind] / EPOCH


@dataclass(slots=True)
class AuctionEvents:
    """Some events of one kind, and the draws for them."""

    sequence: EventSequence
    event: Numbers
    _keys: Hashes | None = field(default=None, repr=False)

    def draw(self, what: int) -> Hashes:
        """64 random bits per event, others for every `what`."""
        if self._keys is None:
            self._keys = mix(self.event.view(np.uint64) ^ mix(np.array([self.sequence.seed % 2**64], dtype=np.uint64)))
        return mix(self._keys + np.uint64(what << 32))

    def below(self, what: int, bound: int) -> Numbers:
        return (self.draw(what) % np.uint64(bound)).view(np.int64)

    def price(self, what: int) -> Numbers:
        """Log-uniform between 100 and 100,000,000 cents: 10^(6u) * 100, of 24 bits of u in two halves."""
        high, low = _powers()
        drawn = self.draw(what)
        product = high[(drawn & np.uint64(0xFFF)).view(np.int64)] * low[(drawn >> np.uint64(52)).view(np.int64)]
        return np.rint(product * 100).astype(np.int64)

    def hot_or(self, what: int, ratio: int, hot: Numbers, lowest: Numbers, count: Numbers) -> Numbers:
        """The hot one in all but one of `ratio` draws, else any of `count` from the lowest on."""
        drawn = self.draw(what)
        cold = lowest + ((drawn >> np.uint64(16)) % count.view(np.uint64)).view(np.int64)
        return FIRST_ID + np.where(drawn % np.uint64(ratio) > 0, hot, cold)

    def last_person(self) -> Numbers:
        """The newest person there is, counted from 0."""
        return self.event // EPOCH

    def last_auction(self) -> Numbers:
        position = self.event % EPOCH
        return self.event // EPOCH * AUCTIONS + np.clip(position - PEOPLE, -1, AUCTIONS - 1)

    def person_named(self, what: int, ratio: int, offset: int) -> Numbers:
        last = self.last_person()
        active = np.minimum(last + 1, ACTIVE_PEOPLE)
        return self.hot_or(what, ratio, last // HOT * HOT + offset, last + 1 - active, active + LEAD)

    def picked(self, what: int, pool: pl.Series) -> pl.Series:
        return pool.gather(pl.Series(self.below(what, len(pool))))


Column: TypeAlias = tuple[Type, Callable[[AuctionEvents], pl.Series | Numbers]]


def _time(rows: AuctionEvents) -> pl.Series:
    return pl.Series(rows.sequence.time(rows.event)).cast(pl.Datetime("us"))


def _expires(rows: AuctionEvents) -> pl.Series:
    opened = rows.sequence.time(rows.event)
    usual = (rows.sequence.time(rows.event + AHEAD) - opened) // MILLISECOND
    length = 1 + (rows.draw(20) % np.maximum(2 * usual, 1).view(np.uint64)).view(np.int64)
    return pl.Series(opened + length * MILLISECOND).cast(pl.Datetime("us"))


def _email(rows: AuctionEvents) -> pl.Series:
    name, host = (rows.picked(what, _words(rows.sequence.seed, what, width)) for what, width in ((2, 7), (3, 5)))
    return pl.select(pl.concat_str(name.alias("n"), pl.lit("@"), host.alias("h"), pl.lit(".com"))).to_series()


def _card(rows: AuctionEvents) -> pl.Series:
    drawn = rows.draw(4)
    groups = [pl.Series(f"g{n}", (drawn >> np.uint64(16 * n)) % np.uint64(10_000)) for n in range(4)]
    return pl.select(pl.concat_str((g.cast(pl.String).str.zfill(4) for g in groups), separator=" ")).to_series()


def _filler(rows: AuctionEvents, what: int, average: int, size: Numbers) -> pl.Series:
    """Letters that bring an event to about its average size."""
    missing = average - size
    around = np.rint(0.2 * missing).astype(np.int64)
    spread = np.maximum(2 * around, 1)
    length = missing - around + (rows.draw(what) % spread.view(np.uint64)).view(np.int64)
    length = np.where(missing < 0, 0, length)
    return rows.picked(what + 1, _letters(rows.sequence.seed, what)).str.slice(0, pl.Series(length).cast(pl.UInt64))


def _size(rows: AuctionEvents, columns: Mapping[str, Column]) -> Numbers:
    """Texts count by their length, numbers and times as 8 bytes."""
    texts = [name for name, (kind, _) in columns.items() if kind == VARCHAR and name != "extra"]
    made = [pl.Series(columns[name][1](rows)).str.len_bytes().cast(pl.Int64).to_numpy() for name in texts]
    size: Numbers = np.sum(made, axis=0) + 8 * (len(columns) - 1 - len(texts))
    return size


PERSON: Final[Mapping[str, Column]] = {
    "id": (BIGINT, lambda rows: FIRST_ID + rows.last_person()),
    "name": (VARCHAR, lambda rows: rows.picked(1, _names())),
    "email_address": (VARCHAR, _email),
    "credit_card": (VARCHAR, _card),
    "city": (VARCHAR, lambda rows: rows.picked(5, pl.Series(CITIES))),
    "state": (VARCHAR, lambda rows: rows.picked(6, pl.Series(STATES))),
    "date_time": (TIMESTAMP, _time),
    "extra": (VARCHAR, lambda rows: _filler(rows, 7, PERSON_BYTES, _size(rows, PERSON))),
}

AUCTION: Final[Mapping[str, Column]] = {
    "id": (BIGINT, lambda rows: FIRST_ID + rows.last_auction()),
    "item_name": (VARCHAR, lambda rows: rows.picked(11, _words(rows.sequence.seed, 11, 20))),
    "description": (VARCHAR, lambda rows: rows.picked(12, _words(rows.sequence.seed, 12, 100))),
    "initial_bid": (BIGINT, lambda rows: rows.price(13)),
    "reserve": (BIGINT, lambda rows: rows.price(13) + rows.price(14)),
    "date_time": (TIMESTAMP, _time),
    "expires": (TIMESTAMP, _expires),
    "seller": (BIGINT, lambda rows: rows.person_named(15, HOT_SELLER_RATIO, 0)),
    "category": (BIGINT, lambda rows: FIRST_CATEGORY + rows.below(16, CATEGORIES)),
    "extra": (VARCHAR, lambda rows: _filler(rows, 17, AUCTION_BYTES, _size(rows, AUCTION))),
}


def _auction_named(rows: AuctionEvents) -> Numbers:
    last = rows.last_auction()
    lowest = np.maximum(last - IN_FLIGHT, 0)
    return rows.hot_or(21, HOT_AUCTION_RATIO, last // HOT * HOT, lowest, last - lowest + 1 + LEAD)


def _channel(rows: AuctionEvents, texts: int) -> pl.Series:
    """The name or the address of a channel: a hot one in half of all draws."""
    drawn = rows.draw(24)
    cold, hot = (drawn >> np.uint64(16)) % np.uint64(CHANNELS), (drawn >> np.uint64(8)) % np.uint64(len(HOT_CHANNELS))
    index = np.where(drawn % np.uint64(2) > 0, CHANNELS + hot, cold)
    return _channels(rows.sequence.seed)[texts].gather(pl.Series(index))


BID: Final[Mapping[str, Column]] = {
    "auction": (BIGINT, _auction_named),
    # The hot bidder is not the hot seller.
    "bidder": (BIGINT, lambda rows: rows.person_named(22, HOT_BIDDER_RATIO, 1)),
    "price": (BIGINT, lambda rows: rows.price(23)),
    "channel": (VARCHAR, lambda rows: _channel(rows, 0)),
    "url": (VARCHAR, lambda rows: _channel(rows, 1)),
    "date_time": (TIMESTAMP, _time),
    # The size of a bid counts as 32, whatever its channel.
    "extra": (VARCHAR, lambda rows: rows.picked(25, _bid_fillers(rows.sequence.seed))),
}

KINDS: Final[Mapping[str, Mapping[str, Column]]] = {"person": PERSON, "auction": AUCTION, "bid": BID}
PER_EPOCH: Final = {"person": PEOPLE, "auction": AUCTIONS, "bid": EPOCH - PEOPLE - AUCTIONS}


def events_of(sequence: EventSequence, kind: str, begin: int, end: int) -> AuctionEvents:
    """The events of a kind among those from `begin` to `end`, in order of arrival."""
    event = sequence.arriving(begin, end)
    first = {"person": 0, "auction": PEOPLE, "bid": PEOPLE + AUCTIONS}[kind]
    position = event % EPOCH
    return AuctionEvents(sequence, event[(position >= first) & (position < first + PER_EPOCH[kind])])
