"""The results in a directory of Parquet files, with those elements whose end is not known yet.

    DIR/q/part-000000000.parquet    elements with their ends; they grow by row groups
    DIR/_open/q.parquet             elements that are open, replaced as a whole from time to time

The file of open elements says in its metadata up to when it is complete, and which rows of the results go with it: all
files before `last_file`, and the first `last_rows` rows of that one. Rows after them may end an element that is open in
it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from strandline.connectors.sinks.base import KeptResults
from strandline.core.temporal import FOREVER, OPEN, Instant
from strandline.runtime.result import INSTANT, VALID_UNTIL

OPEN_DIRECTORY: Final = "_open"
METADATA_KEY: Final = b"strandline"


@dataclass(frozen=True, slots=True)
class OpenFileFacts:
    """Metadata of a file of open elements."""

    complete_until: Instant
    last_file: str = ""
    last_rows: int = 0

    def to_metadata(self) -> dict[bytes, bytes]:
        return {METADATA_KEY: json.dumps(asdict(self)).encode()}


@dataclass(frozen=True, slots=True)
class StoredResults:
    """Results as they lie in a directory: elements with their ends, and those that were open at `complete_until`; None
    if there is no file of open elements."""

    ended: list[pa.Table]
    open: pa.Table | None = None
    complete_until: Instant | None = None

    def kept(self) -> KeptResults:
        """All elements, each once; those without a known end have the end `OPEN`."""
        if self.open is None:
            return KeptResults(self.ended)
        ends = pa.array([OPEN] * self.open.num_rows, pa.int64()).cast(INSTANT)
        last, field = self.open.num_columns - 1, self.open.schema.field(VALID_UNTIL)
        return KeptResults([*self.ended, self.open.set_column(last, field, ends)], self.complete_until)


def open_file(directory: Path) -> Path:
    """The file of the open elements of the results in a directory."""
    return directory.parent / OPEN_DIRECTORY / f"{directory.name}.parquet"


def result_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.parquet"))


def read_stored(directory: Path) -> StoredResults:
    """Read results that may be written meanwhile: the open elements first, then the rows that go with them."""
    path = open_file(directory)
    try:
        with pq.ParquetFile(path) as file:
            facts = OpenFileFacts(**json.loads(file.metadata.metadata[METADATA_KEY]))
            still_open = file.read()
    except FileNotFoundError:
        return StoredResults([pq.ParquetFile(path).read() for path in result_files(directory)])
    ended = []
    for path in result_files(directory):
        if path.name < facts.last_file:
            ended.append(pq.ParquetFile(path).read())
        elif path.name == facts.last_file or facts.complete_until == FOREVER:
            rows = pq.ParquetFile(path).read()
            ended.append(rows if facts.complete_until == FOREVER else rows.slice(0, facts.last_rows))
    return StoredResults(ended, still_open, facts.complete_until)
