"""The generated auction house: what it draws, that it is always the same, and what the source makes of it."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import strandline as sl
from strandline.connectors.sources import clock as sources_clock
from strandline.connectors.sources.auctions import KINDS
from strandline.connectors.sources.base import Source, open_source, source_schema
from strandline.core.errors import StrandlineError
from strandline.core.temporal import BEFORE_ALL, MILLISECOND, SECOND, instant
from strandline.logical.catalog import Argument, BaseStream, ConnectorCall
from strandline.runtime.kernels.batch import FROM

EVENTS = 500_000
START = instant("2015-07-15 00:00:00")


def source(kind: str, **options: Argument) -> Source:
    call = ConnectorCall("nexmark", (kind,), options)
    known = source_schema(call)
    assert known is not None
    return open_source(BaseStream(kind, known.columns, call, known.time_column, known.disorder_us))


def rows(made: Source, start: int, end: int, *columns: str) -> pl.DataFrame:
    wanted = frozenset(columns or (name for name, _ in made.stream.columns))
    return pl.concat([chunk.rows for chunk in made.read(start, end, wanted)])


@pytest.fixture(scope="module")
def house() -> dict[str, pl.DataFrame]:
    return {kind: rows(source(kind, events=EVENTS), 0, EVENTS) for kind in KINDS}


def test_kinds_are_one_three_and_forty_six_of_fifty(house: dict[str, pl.DataFrame]) -> None:
    assert [house[kind].height for kind in KINDS] == [EVENTS // 50, EVENTS * 3 // 50, EVENTS * 46 // 50]


def test_ids_are_dense_and_times_come_from_the_rate(house: dict[str, pl.DataFrame]) -> None:
    for kind in ("person", "auction"):
        assert house[kind]["id"].to_list() == list(range(1000, 1000 + house[kind].height))
    # 10,000 events a second: ten share a millisecond.
    bid = house["bid"][FROM] - START
    assert bid[0] == 0 and bid[-1] == EVENTS // 10 * MILLISECOND - MILLISECOND
    assert (bid % MILLISECOND == 0).all() and bid.is_sorted()
    assert rows(source("person", rate="0.5"), 0, 101)[FROM].to_list() == [
        START,
        START + 100 * SECOND,
        START + 200 * SECOND,
    ]


def test_half_of_the_bids_go_to_the_hot_auction_and_few_to_one_that_is_not_there(
    house: dict[str, pl.DataFrame],
) -> None:
    bid, auction = house["bid"], house["auction"]
    per_auction = bid.group_by("auction").len()
    hot = per_auction.filter(pl.col("auction") % 100 == 0).filter(pl.col("auction") > 1000)["len"]
    cold = per_auction.filter(pl.col("auction") % 100 != 0)["len"]
    assert hot.median() == pytest.approx(773, rel=0.03)
    assert cold.mean() == pytest.approx(7.7, rel=0.03)
    created = bid.join(auction.select("id", opened=FROM), left_on="auction", right_on="id", how="left")
    ahead = (created["opened"].is_null() | (created["opened"] > created[FROM])).mean()
    assert ahead == pytest.approx(0.045, abs=0.003)


def test_bidders_and_sellers_are_skewed_and_not_the_same(house: dict[str, pl.DataFrame]) -> None:
    bid, auction, person = house["bid"], house["auction"], house["person"]
    assert (bid["bidder"] % 100 == 1).mean() == pytest.approx(0.75 + 0.25 / 100, abs=0.005)
    assert (auction["seller"] % 100 == 0).mean() == pytest.approx(0.75 + 0.25 / 100, abs=0.01)
    per_bidder = bid.filter(pl.col("bidder") % 100 == 1).group_by("bidder").len()
    assert per_bidder.filter(pl.col("len") > 1000)["len"].median() == pytest.approx(3450, rel=0.03)
    created = bid.join(person.select("id", since=FROM), left_on="bidder", right_on="id", how="left")
    ahead = created["since"].is_null() | (created["since"] > created[FROM])
    # The hot bidder is the second of a hundred, and not there yet during the first fifty events of each.
    hot = bid["bidder"] % 100 == 1
    assert (ahead & ~hot).mean() == pytest.approx(0.0027, abs=0.0008)
    assert (ahead & hot).mean() == pytest.approx(0.0075, abs=0.001)


def test_prices_are_log_uniform(house: dict[str, pl.DataFrame]) -> None:
    price = house["bid"]["price"]
    assert price.is_between(100, 100_000_000).all()
    assert price.median() == pytest.approx(100_000, rel=0.03)
    assert price.mean() == pytest.approx(7_238_234, rel=0.02)
    classes = [(price < 10_000).mean(), price.is_between(10_000, 1_000_000, closed="left").mean()]
    assert classes == pytest.approx([1 / 3, 1 / 3], abs=0.005)
    quantiles = [np.log10(price.quantile(q) or 0.0) for q in (0.1, 0.25, 0.75, 0.9)]
    assert quantiles == pytest.approx([2.6, 3.5, 6.5, 7.4], abs=0.03)
    auction = house["auction"]
    assert (auction["reserve"] > auction["initial_bid"]).all()


def test_auctions_last_as_long_as_their_rate_says(house: dict[str, pl.DataFrame]) -> None:
    auction = house["auction"]
    length = (auction["expires"] - auction["date_time"]).dt.total_milliseconds()
    longest: Any = length.max()
    assert length.min() == 1 and 330 <= longest <= 334
    assert length.mean() == pytest.approx(167, rel=0.02)
    slow = rows(source("auction", rate=100), 0, 50_000)
    assert (slow["expires"] - slow["date_time"]).dt.total_milliseconds().mean() == pytest.approx(16_670, rel=0.03)
    assert auction["category"].value_counts()["count"].to_numpy() / auction.height == pytest.approx([0.2] * 5, abs=0.01)


def test_texts_have_their_forms_and_events_their_sizes(house: dict[str, pl.DataFrame]) -> None:
    person, auction, bid = (house[kind] for kind in KINDS)
    assert person["credit_card"].str.contains(r"^\d{4} \d{4} \d{4} \d{4}$").all()
    assert person["email_address"].str.contains(r"^[a-z ]*@[a-z ]*\.com$").all()
    assert person["name"].n_unique() == 99 and person["city"].n_unique() == 10 and person["state"].n_unique() == 6
    assert person["state"].is_in(["OR", "ID", "CA"]).mean() == pytest.approx(0.5, abs=0.03)
    assert (auction["item_name"].str.len_chars() <= 19).all() and (auction["description"].str.len_chars() <= 99).all()
    assert bid["extra"].str.contains("^[a-z]+$").all()
    lengths = bid["extra"].str.len_chars()
    assert (lengths.min(), lengths.max()) == (54, 81) and lengths.mean() == pytest.approx(67.5, rel=0.01)
    for frame, average in ((person, 200), (auction, 500)):
        texts = frame.select(pl.col(pl.String).str.len_bytes()).sum_horizontal()
        numbers = 8 * frame.select(~pl.selectors.string()).drop(FROM).width
        assert (texts + numbers).mean() == pytest.approx(average, rel=0.03)


def test_half_of_the_channels_are_hot_and_most_others_say_who_they_are(house: dict[str, pl.DataFrame]) -> None:
    bid = house["bid"]
    hot = ~bid["channel"].str.starts_with("channel-")
    assert hot.mean() == pytest.approx(0.5, abs=0.005)
    assert set(bid.filter(hot)["channel"]) == {"Google", "Facebook", "Baidu", "Apple"}
    says = bid["url"].str.contains(r"&channel_id=\d+$")
    assert not says.filter(hot).any() and says.filter(~hot).mean() == pytest.approx(0.9, abs=0.01)
    assert (
        bid["url"]
        .str.contains(r"^https://www\.nexmark\.com/[a-z_]{3,4}/[a-z_]{3,4}/[a-z_]{3,4}/item\.htm\?query=1")
        .all()
    )
    assert bid.group_by("channel").agg(pl.col("url").n_unique())["url"].max() == 1


@settings(deadline=None, max_examples=25)
@given(
    kind=st.sampled_from(sorted(KINDS)),
    cuts=st.lists(st.integers(0, 3000), max_size=4),
    disorder=st.sampled_from((1, 7, 100)),
    columns=st.sets(st.integers(0, 6), min_size=1),
)
def test_however_it_is_cut_the_stream_is_the_same(kind: str, cuts: list[int], disorder: int, columns: set[int]) -> None:
    made = source(kind, disorder=disorder, seed=5)
    whole = rows(made, 0, 3000)
    places = [0, *sorted(cuts), 3000]
    names = [made.stream.columns[n][0] for n in sorted(columns)]
    another = source(kind, disorder=disorder, seed=5)
    parts = pl.concat([rows(another, a, b, *names) for a, b in pairwise(places) if a < b])
    assert parts.select(*names, FROM).equals(whole.select(*names, FROM))


def test_disorder_is_a_bounded_shuffle_of_the_same_rows() -> None:
    for kind in KINDS:
        shuffled, ordered = source(kind, disorder=600), source(kind)
        one, two = rows(shuffled, 0, 6000), rows(ordered, 0, 6000)
        assert not one.equals(two) and one.sort("date_time", *one.columns).equals(two.sort("date_time", *two.columns))
        time = one[FROM].to_numpy()
        behind = np.maximum.accumulate(time) - time
        assert 0 < behind.max() <= shuffled.stream.disorder_us == 60 * MILLISECOND


@pytest.mark.parametrize("disorder", [1, 30, 1000])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_latest_time_is_known_without_looking_at_all_rows(kind: str, disorder: int) -> None:
    made = source(kind, disorder=disorder, rate=1000)
    for start, end in ((0, 1), (0, 3), (3, 40), (0, 5000), (4321, 9876), (5000, 5001)):
        time = rows(made, start, end)[FROM] if rows(made, start, end).height else pl.Series([BEFORE_ALL])
        assert made.latest(start, end) == time.max()


def test_tasks_divide_what_is_worth_it() -> None:
    made = source("bid", events=None)
    assert made.split_points(0, 1_000_000, 4) == (250_000, 500_000, 750_000)
    assert made.split_points(0, 60_000, 4) == () and source("person").split_points(0, 1_000_000, 4) == ()
    by_price = open_source(replace(made.stream, time_column="price"))
    assert by_price.split_points(0, 1_000_000, 4) == ()


def test_positions_count_events_of_all_kinds() -> None:
    for kind in KINDS:
        made = source(kind, events=120)
        assert [made.advance(p, 100) for p in (0, 100, 120)] == [(100, False), (120, True), (120, True)]
    assert source("bid", events=None).advance(10**9, 50) == (10**9 + 50, False)


def test_a_paced_stream_comes_with_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_700_000_000.0]
    monkeypatch.setattr(sources_clock, "now", lambda: int(clock[0] * SECOND))
    made = source("bid", rate=10, pace=True, start=None)
    assert made.advance(0, 1000) == (0, False)
    clock[0] += 2.5
    assert made.advance(0, 1000) == (25, False)
    assert rows(made, 0, 25)[FROM][0] == 1_700_000_000 * SECOND + 400 * MILLISECOND


def test_two_million_events_a_second() -> None:
    made = source("bid", events=None)
    columns = ("auction", "bidder", "price", "date_time")
    rows(made, 0, 1000, *columns)
    best = np.inf
    for _ in range(3):
        began = time.process_time()
        assert rows(made, 0, 1_000_000, *columns).height == 920_000
        best = min(best, time.process_time() - began)
    assert 1_000_000 / best > 2_000_000


def test_a_stream_need_not_list_its_columns() -> None:
    with sl.connect(engine="local") as database:
        database.sql("CREATE STREAM bid SOURCE nexmark('bid', events => 100, disorder => 10, rate => 100)")
        shown = str(database.sql("DESCRIBE bid"))
        for line in ("column    auction    BIGINT", "time      date_time", "90 MILLISECONDS"):
            assert line in shown
        database.sql(
            "CREATE STREAM auction SOURCE nexmark('auction', events => 100) VALID FROM date_time UNTIL expires"
        )
        query = database.sql("SELECT id FROM auction")
        query.await_end()
        lengths = query.results("polars")["valid_until"] - query.results("polars")["valid_from"]
        assert lengths.dt.total_milliseconds().min() >= 1 and lengths.n_unique() > 1


def test_a_stream_may_list_some_columns_in_types_of_its_own() -> None:
    with sl.connect(engine="local") as database:
        database.sql(
            "CREATE STREAM b (price DOUBLE, date_time TIMESTAMP) "
            "SOURCE nexmark('bid', events => 50) ORDERED BY date_time"
        )
        query = database.sql("SELECT price FROM b")
        query.await_end()
        assert query.results("polars")["price"].dtype == pl.Float64 and query.results("polars").height == 46


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "CREATE STREAM s SOURCE nexmark('bit')",
            "the kind of nexmark() must be one of 'person', 'auction', 'bid', not 'bit'",
        ),
        ("CREATE STREAM s SOURCE nexmark()", "nexmark() needs a kind of event"),
        ("CREATE STREAM s SOURCE nexmark('bid', rate => 0)", "the rate of nexmark() must be greater than 0"),
        ("CREATE STREAM s SOURCE nexmark('bid', start => 'noon')", "invalid option of nexmark()"),
        ("CREATE STREAM s SOURCE nexmark('bid', disorder => 1906)", "must not be a multiple of 953"),
        ("CREATE STREAM s SOURCE nexmark('bid', disorder => 0)", "its disorder at least 1"),
        ("CREATE STREAM s SOURCE nexmark('bid', events => 'all')", "invalid value of option events of nexmark()"),
        ("CREATE STREAM s SOURCE nexmark('bid', size => 3)", "nexmark() has no option size"),
        ("CREATE STREAM s (id INT, date_time TIMESTAMP) SOURCE nexmark('bid') ORDERED BY date_time", 'no column "id"'),
        ("CREATE STREAM s SOURCE nexmark('bid') ORDERED BY price_time", 'column "price_time" does not exist'),
        ("CREATE STREAM s SOURCE nexmark('bid') ORDERED BY url", 'the time column "url" cannot be of type VARCHAR'),
        ("CREATE STREAM s SOURCE rate()", "rate() needs a column list"),
        ("CREATE STREAM s SOURCE nothing()", 'unknown source "nothing"'),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(statement: str, message: str) -> None:
    with sl.connect(engine="local") as database, pytest.raises(StrandlineError) as caught:
        database.sql(statement)
    assert message in str(caught.value) and caught.value.span is not None


def test_late_rows_are_whole() -> None:
    """Rows that a wrong promise makes late are kept aside with all columns, also those that no query reads."""
    with sl.connect(engine="local") as database:
        database.sql(
            "CREATE STREAM bid SOURCE nexmark('bid', events => 500, disorder => 60, rate => 100) "
            "ORDERED BY date_time WITHIN 0 SECONDS"
        )
        query = database.sql("SELECT price FROM bid")
        query.await_end()
        late: Any = query.late("bid", "polars")
    assert late.height > 0 and late.columns == list(KINDS["bid"]) and late["url"].null_count() == 0
