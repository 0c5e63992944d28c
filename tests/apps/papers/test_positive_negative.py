"""Krämer's chapter 14 computed: the facts of the auctions, the queues of joins, the report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from strandline.apps.papers.kraemer_pna import joins
from strandline.apps.papers.kraemer_pna.auction_streams import (
    AUCTIONS,
    BIDS,
    FIRST_ITEM,
    LARGEST_BURST,
    LONGEST_AUCTION,
    PEOPLE,
    Auctions,
    generate_auctions,
)
from strandline.apps.papers.kraemer_pna.queries import WINDOWS, window_content
from strandline.apps.papers.output import PaperOptions
from strandline.apps.papers.report import PAPERS, reproduce
from strandline.core.errors import StrandlineError
from strandline.core.temporal import MILLISECOND
from strandline.runtime.kernels.batch import FROM


@pytest.fixture(scope="module")
def auctions() -> Auctions:
    return generate_auctions(0.25)


def test_there_are_as_many_as_the_thesis_says(auctions: Auctions) -> None:
    counts = [auctions.bid.rows.height, auctions.open_auction.rows.height, auctions.people]
    assert counts == [round(0.25 * number) for number in (BIDS, AUCTIONS, PEOPLE)]


def test_windows_hold_as_many_bids_as_the_thesis_says(auctions: Auctions) -> None:
    contents = {name: window_content(auctions, length) for name, length in WINDOWS.items()}
    assert contents["now"].mean == pytest.approx(6, abs=0.1) and contents["now"].most == LARGEST_BURST
    assert contents["10 minutes"].mean == pytest.approx(97, rel=0.05)
    assert contents["5 hours"].mean == pytest.approx(2880, rel=0.05)


def test_bids_are_on_open_auctions_and_raise_the_price(auctions: Auctions) -> None:
    times = auctions.open_auction.rows.select("item", "start_price", opened=FROM).join(
        auctions.closed_auction.rows.select("item", closed=FROM), on="item"
    )
    assert ((times["closed"] - times["opened"]) <= LONGEST_AUCTION * MILLISECOND).all()
    assert times["item"].min() == FIRST_ITEM
    bids = auctions.bid.rows.join(times, on="item", how="left")
    assert (bids[FROM] >= bids["opened"]).all() and (bids[FROM] <= bids["closed"]).all()
    raised = auctions.bid.rows.select(pl.col("price").diff().over("item"))["price"].drop_nulls()
    assert (raised > 0).all() and (bids["price"] > bids["start_price"]).all()


def test_the_same_seed_is_the_same_data() -> None:
    assert generate_auctions(0.002).bid.rows.equals(generate_auctions(0.002).bid.rows)
    assert not generate_auctions(0.002, seed=2).bid.rows.equals(generate_auctions(0.002).bid.rows)


def test_an_arriving_element_finds_those_of_its_own_side_since_the_other() -> None:
    side = np.array([0, 0, 1, 0, 1, 1, 1])
    assert joins._run_lengths(side).tolist() == [1, 2, 1, 1, 1, 2, 3]


@pytest.mark.parametrize(("largest", "matches"), [(1_000, 0.5), (100, 5.0)])
def test_queues_are_as_long_as_the_thesis_says(largest: int, matches: float) -> None:
    found = joins.follow(*joins.numbers(largest, 20_000))
    assert found.stored == pytest.approx(500, rel=0.05)
    assert found.matches == pytest.approx(matches, rel=0.06)
    assert found.input_queue == pytest.approx(1, rel=0.05)
    assert found.output_queue == pytest.approx(matches, rel=0.1)
    assert found.list_comparisons < found.heap_comparisons
    # A queue is better where fewer elements go through it.
    assert (found.output_comparisons < found.input_comparisons) == (matches < 1)


@pytest.mark.parametrize("name", ["golab-ozsu", "kraemer-pna"])
def test_a_small_report_has_its_tables_and_figures(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.apps.papers.golab_ozsu.engine.WINDOWS", (20_000,))
    for module in ("golab_ozsu.engine", "kraemer_pna.queries"):
        monkeypatch.setattr(f"strandline.apps.papers.{module}.REPEAT", 1)
    console = Console(record=True, width=300)
    reproduce(name, PaperOptions(scale=0.005, directory=tmp_path), console)
    text = console.export_text()
    assert "follows" in text and "NO " not in text
    assert len(list(tmp_path.glob("*.svg"))) >= 5


def test_another_paper_is_unknown() -> None:
    with pytest.raises(StrandlineError, match="unknown paper"):
        reproduce("codd", PaperOptions(), Console())
    assert set(PAPERS) == {"ayad-naughton", "golab-ozsu", "hammad", "kraemer-pna"}
