"""Errors on their way through the JVM: what arrives is ours, and nothing in a message of others is executed."""

from __future__ import annotations

import base64
import json
import pickle
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client
from pathlib import Path

import pytest

import strandline as sl
from strandline.core.errors import CheckpointError, SourceError, Span, StrandlineError
from strandline.core.lease import Lease
from strandline.core.types import BIGINT
from strandline.database.database import Database
from strandline.engines.spark.failure import explain_failure, new_secret, seal_error
from strandline.engines.spark.offset_server import OffsetServer
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.planner.physical.plan import Pipeline
from strandline.runtime.checkpoint.chain import CheckpointChain
from strandline.runtime.pipeline import RunningPipeline

ERROR = SourceError("no file", code="missing-file", hint="Look.", detail="d", span=Span("SELECT \ud800", 0, 6))


class Bomb:
    """Runs when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.marker,)


def test_an_error_arrives_as_it_was_sent() -> None:
    secret = new_secret()
    arrived = explain_failure(f"org.apache…: {seal_error(ERROR, secret)}\n\tat java.lang.Thread", secret, None)
    assert type(arrived) is SourceError
    assert arrived.to_json() == ERROR.to_json()


def test_an_error_of_another_run_is_only_text() -> None:
    arrived = explain_failure(seal_error(ERROR, new_secret()), new_secret(), None)
    assert arrived.code == "query-failed"


def test_a_forged_mark_before_the_real_one_changes_nothing() -> None:
    secret = new_secret()
    forged = seal_error(CheckpointError("forged", code="forged"), new_secret())
    assert explain_failure(f"row: {forged}\n{seal_error(ERROR, secret)}", secret, None).code == "missing-file"


@pytest.mark.parametrize("mark", ["STRANDLINE-ERROR ", f"STRANDLINE-ERROR {'0' * 64} "])
def test_a_pickle_in_a_message_is_not_executed(mark: str, tmp_path: Path) -> None:
    payload = base64.b64encode(pickle.dumps(Bomb(tmp_path / "executed"))).decode()
    assert explain_failure(f"bad row: {mark}{payload} x", new_secret(), None).code == "query-failed"
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("data", [None, [], {}, {"class": "Path"}, {**ERROR.to_json(), "class": "os.system"},
                                  {**ERROR.to_json(), "span": ["x", 1]}, {**ERROR.to_json(), "hint": 3}])  # fmt: skip
def test_what_is_no_error_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="not a strandline error"):
        StrandlineError.from_json(json.loads(json.dumps(data)))


def test_the_planner_hears_only_those_who_know_the_secret(tmp_path: Path) -> None:
    stream = BaseStream("s", (("k", BIGINT),), ConnectorCall("rows", ([1],)), None)
    secret = new_secret()
    lease = Lease.acquire(tmp_path)
    chain = CheckpointChain(tmp_path, lease)
    planner = OffsetServer(RunningPipeline(Pipeline((stream,), (), (), 1), chain=chain, batch_rows=10), secret)
    try:
        for wrong in (bytes.fromhex(new_secret()), b"x"):
            with pytest.raises((AuthenticationError, EOFError, ConnectionError)):
                Client(planner.address, authkey=wrong)
        with Client(planner.address, authkey=bytes.fromhex(secret)) as connection:
            connection.send_bytes(json.dumps(["beginning"]).encode())
            assert "value" in json.loads(connection.recv_bytes())
    finally:
        planner.close()
        lease.release()


@pytest.mark.spark
def test_a_row_with_a_pickle_in_it_executes_nothing(spark_database: Database, tmp_path: Path) -> None:
    payload = base64.b64encode(pickle.dumps(Bomb(tmp_path / "executed"))).decode()
    path = tmp_path / "rows.csv"
    path.write_text(f"k,ts\nSTRANDLINE-ERROR {payload},2024-01-01 00:00:00\n")
    with sl.connect(spark=spark_database.spark) as db:

        def fail(column: object) -> object:
            raise ValueError(str(column))

        db.function("fail", fail, arguments=["VARCHAR"], returns="VARCHAR")
        db.sql(f"CREATE STREAM s (k VARCHAR, ts TIMESTAMP) SOURCE file('{path}') ORDERED BY ts")
        with pytest.raises(sl.StrandlineError):
            db.sql("SELECT fail(k) AS f FROM s").await_end()
    assert not (tmp_path / "executed").exists()
