"""What the catalog refuses to drop or replace: what others were built from."""

from __future__ import annotations

import pytest

from strandline.core.errors import CatalogError
from strandline.logical.catalog import Catalog, DependentQuery, DerivedStream
from strandline.sql import ast
from strandline.sql.binder.binder import bind_derived_stream, bind_view
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.parser.statements import parse, parse_one

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
            case ast.CreateView():
                catalog.add(bind_view(statement, catalog))
    return catalog


def view(text: str, catalog: Catalog) -> DerivedStream:
    statement = parse_one(text)
    assert isinstance(statement, ast.CreateView)
    return bind_view(statement, catalog)


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
        ("SELECT auction FROM bid WHERE EXISTS (SELECT 1 FROM ask)", {"Bid", "Ask"}),
        (
            "WITH unused AS (SELECT auction FROM ask), bid AS (SELECT auction FROM cheap) SELECT * FROM bid",
            {"Ask", "Cheap"},
        ),
    ],
)
def test_a_derived_stream_knows_what_its_query_reads(query: str, expected: set[str]) -> None:
    assert reads(query) == expected


@pytest.mark.parametrize("spelling", ["Cheap", "cheap", "CHEAP"])
def test_a_derived_stream_that_is_read_stays(spelling: str) -> None:
    error = refused(declared(), spelling)
    assert error.message == 'cannot drop stream "Cheap": it is read by stream "Cheapest"'
    assert error.detail is None
    assert error.hint == "Drop them first, or together: DROP STREAM Cheap CASCADE."


@pytest.mark.parametrize("spelling", ["Bid", "bid", "BID"])
def test_direct_and_indirect_readers_are_named(spelling: str) -> None:
    error = refused(declared("CREATE VIEW Top AS SELECT auction FROM cheapest"), spelling)
    assert error.message == 'cannot drop stream "Bid": it is read by stream "Cheap"'
    assert error.detail == 'Indirectly, it is also read by stream "Cheapest", view "Top".'


def test_all_direct_readers_are_named() -> None:
    catalog = declared("CREATE STREAM Both AS SELECT a.auction FROM ask AS a JOIN cheap AS c ON a.auction = c.auction")
    assert (
        refused(catalog, "cheap").message
        == 'cannot drop stream "Cheap": it is read by stream "Cheapest", stream "Both"'
    )


def test_the_spelling_in_reads_does_not_matter() -> None:
    catalog = declared()
    cheap = catalog.get("cheap")
    assert isinstance(cheap, DerivedStream)
    catalog.add(DerivedStream("Other", cheap.plan, cheap.text, frozenset(("aSK",))))
    assert refused(catalog, "ask").message == 'cannot drop stream "Ask": it is read by stream "Other"'


def test_streams_go_once_their_readers_are_gone() -> None:
    catalog = declared()
    for name in ("CHEAPEST", "cheap", "bid", "ask"):
        assert [stream.name.lower() for stream in catalog.drop(name)] == [name.lower()]
    assert list(catalog) == []


def test_cascade_takes_all_that_is_built_on_a_stream() -> None:
    catalog = declared("CREATE VIEW v AS SELECT auction FROM ask; CREATE VIEW w AS SELECT auction FROM cheapest")
    assert [stream.name for stream in catalog.drop("bid", cascade=True)] == ["Bid", "Cheap", "Cheapest", "w"]
    assert [stream.name for stream in catalog] == ["Ask", "v"]


def test_cascade_takes_a_diamond_once() -> None:
    catalog = declared(
        "CREATE STREAM d AS SELECT a.auction FROM cheap AS a JOIN cheapest AS b ON a.auction = b.auction"
    )
    assert sorted(stream.name for stream in catalog.drop("cheap", cascade=True)) == ["Cheap", "Cheapest", "d"]


@pytest.mark.parametrize("cascade", [False, True])
def test_what_a_running_query_reads_stays(cascade: bool) -> None:
    catalog = declared()
    with pytest.raises(CatalogError) as caught:
        catalog.drop("bid", cascade=cascade, running=[DependentQuery("q1", frozenset(["cheaPest"]))])
    assert caught.value.message == 'cannot drop stream "Bid": it is read by stream "Cheap"'
    assert caught.value.detail == 'Indirectly, it is also read by stream "Cheapest", running query "q1".'
    assert caught.value.hint == "Stop the running queries first."
    assert [stream.name for stream in catalog] == ["Bid", "Ask", "Cheap", "Cheapest"]
    assert [s.name for s in catalog.drop("ask", running=[DependentQuery("q1", frozenset(["cheapest"]))])] == ["Ask"]


def test_a_view_is_replaced_if_nobody_reads_it() -> None:
    catalog = declared("CREATE VIEW v AS SELECT auction FROM ask")
    catalog.replace_view(view("CREATE OR REPLACE VIEW V AS SELECT price FROM cheap", catalog))
    replaced = catalog.get("v")
    assert isinstance(replaced, DerivedStream) and replaced.text == "SELECT price FROM cheap"
    catalog.add(view("CREATE VIEW w AS SELECT price FROM v", catalog))
    with pytest.raises(CatalogError) as caught:
        catalog.replace_view(view("CREATE OR REPLACE VIEW v AS SELECT price FROM ask", catalog))
    assert caught.value.message == 'cannot drop view "V": it is read by view "w"'
    assert catalog.get("v") is replaced


def test_a_view_does_not_replace_itself_by_itself() -> None:
    catalog = declared("CREATE VIEW v AS SELECT auction FROM ask")
    with pytest.raises(CatalogError) as caught:
        catalog.replace_view(view("CREATE OR REPLACE VIEW v AS SELECT auction FROM v", catalog))
    assert caught.value.code == "recursive-query"


def test_a_view_does_not_replace_a_stream() -> None:
    catalog = declared()
    with pytest.raises(CatalogError) as caught:
        catalog.replace_view(view("CREATE OR REPLACE VIEW cheapest AS SELECT auction FROM ask", catalog))
    assert caught.value.message == 'stream "Cheapest" already exists'
