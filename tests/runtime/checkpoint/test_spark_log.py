"""Spark's files in a checkpoint, read by ourselves: unexpected content is named before Spark reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from strandline.core.errors import CheckpointError
from strandline.runtime.checkpoint.spark_log import SparkLog

SOUND = "38466821-bc1a-4c56-9d3e-0a1b2c3d4e5f"


def log_with_id(directory: Path, written: object) -> SparkLog:
    log = SparkLog(directory)
    log.metadata.parent.mkdir()
    log.metadata.write_text(json.dumps({"id": written}))
    return log


def test_a_sound_id_is_accepted(tmp_path: Path) -> None:
    assert log_with_id(tmp_path, SOUND).check_metadata()


@pytest.mark.parametrize("written", ["38466821-bcka-4c56-9d3e-0a1b2c3d4e5f", SOUND.upper(), "", None, 7])
def test_an_id_that_spark_cannot_read_is_damage(tmp_path: Path, written: object) -> None:
    log = log_with_id(tmp_path, written)
    with pytest.raises(CheckpointError, match="metadata") as caught:
        log.check_metadata()
    assert caught.value.code == "checkpoint-damaged"
