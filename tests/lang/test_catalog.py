"""What the catalog refuses to drop: streams that other streams were built from."""

from __future__ import annotations

import pytest

from strandline.catalog import Catalog, DerivedStream
from strandline.errors import CatalogError
from strandline.lang import ast
from strandline.lang.binder import bind_create_stream, bind_derived_stream
from strandline.lang.parser import parse

SCRIPT = """
CREATE STREAM Bid (auction BIGINT, price DOUBLE, ts TIMESTAMP) SOURCE file('bids') ORDERED BY ts;
CREATE STREAM Ask (auction BIGINT, price DOUBLE, ts TIMESTAMP) SOURCE file('asks') ORDERED BY ts;
CREATE STREAM Cheap AS SELECT auction, price FROM bID WHERE price < 10;
CREATE STREAM Cheapest AS SELECT c.auction FROM CHEAP AS c WHERE c.price < 1;
"""


def declared(more: str = "") -> Catalog:
    catalog = Catalog()
    for statement in parse(SCRIPT + more):
        match statement:
            case ast.CreateStream():
                catalog.add(bind_create_stream(statement))
            case ast.CreateStreamAs():
                catalog.add(bind_derived_stream(statement, catalog))
    return catalog


def reads(query: str) -> set[str]:
    stream = declared(f"CREATE STREAM x AS {query}").get("x")
    assert isinstance(stream, DerivedStream)
    return set(stream.reads)


def refused(catalog: Catalog, name: str) -> CatalogError:
    with pytest.raises(CatalogError) as caught:
        catalog.drop(name)
    assert caught.value.code == "stream-in-use"
    assert name in catalog
    return caught.value


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT auction FROM BID", {"Bid"}),
        ("SELECT auction FROM cheap", {"Cheap"}),  # and not Bid, though the plan scans it
        ("SELECT 1 AS one FROM bid AS a, bid AS b", {"Bid"}),
        ("SELECT 1 AS one FROM bid JOIN cheapest AS c ON bid.auction = c.auction", {"Bid", "Cheapest"}),
        ("SELECT auction FROM bid UNION ALL SELECT auction FROM ask", {"Bid", "Ask"}),
        ('SELECT q.auction FROM (SELECT auction FROM "ASK") AS q', {"Ask"}),
    ],
)
def test_a_derived_stream_knows_what_its_query_reads(query: str, expected: set[str]) -> None:
    assert reads(query) == expected


@pytest.mark.parametrize("spelling", ["Cheap", "cheap", "CHEAP"])
def test_a_derived_stream_that_is_read_stays(spelling: str) -> None:
    assert refused(declared(), spelling).message == 'stream "Cheap" is still read by Cheapest'


@pytest.mark.parametrize("spelling", ["Bid", "bid", "BID"])
def test_only_direct_readers_are_named(spelling: str) -> None:
    assert refused(declared(), spelling).message == 'stream "Bid" is still read by Cheap'


def test_all_direct_readers_are_named() -> None:
    catalog = declared("CREATE STREAM Both AS SELECT a.auction FROM ask AS a JOIN cheap AS c ON a.auction = c.auction")
    assert refused(catalog, "cheap").message == 'stream "Cheap" is still read by Cheapest, Both'


def test_the_spelling_in_reads_does_not_matter() -> None:
    catalog = declared()
    cheap = catalog.get("cheap")
    assert isinstance(cheap, DerivedStream)
    catalog.add(DerivedStream("Other", cheap.plan, cheap.text, frozenset(("aSK",))))
    assert refused(catalog, "ask").message == 'stream "Ask" is still read by Other'


def test_streams_go_once_their_readers_are_gone() -> None:
    catalog = declared()
    for name in ("CHEAPEST", "cheap", "bid", "ask"):
        catalog.drop(name)
    assert list(catalog) == []
