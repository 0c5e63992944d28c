"""JSON objects, one per line, to rows: what files, sockets, web hooks and Kafka topics have in common."""

from __future__ import annotations

import io
from collections.abc import Iterator

import polars as pl

from strandline.catalog import BaseStream
from strandline.execution.batch import FROM, UNTIL
from strandline.execution.scalars.basis import polars_type
from strandline.execution.sources.base import REJECT_SCHEMA, Chunk
from strandline.execution.sources.conform import conform


def conform_lines(
    data: bytes,
    stream: BaseStream,
    place: str,
    numbers: pl.Series,
    beside: pl.DataFrame | None = None,
    skip_empty: bool = False,
) -> Iterator[Chunk]:
    """The rows of lines without a line break at the end; `numbers` says which rows of the input they are, one by one.

    Lines that are no JSON object are rejected, but for empty ones if these mean nothing. `beside` has declared columns
    that do not come from the objects, a row per line.
    """
    told = {name: pl.String() for name, _ in stream.columns if beside is None or name not in beside.columns}
    try:
        frame = pl.read_ndjson(io.BytesIO(data), schema=told)
        if frame.height == len(numbers):
            yield conform(_side_by_side(frame, beside), stream, place, numbers)
            return
    except pl.exceptions.ComputeError:
        pass
    # Some line is no object, or empty: look at the lines apart, so that only that one is rejected.
    texts = pl.Series("content", data.decode(errors="replace").split("\n"))
    sound = _are_objects(texts)
    if not _reads(texts.filter(sound)):  # two parsers do not agree on every odd line; the one that reads decides
        sound = sound & pl.Series([_reads(texts[i : i + 1]) for i in range(len(texts))])
    if sound.any():
        frame = pl.read_ndjson(_as_lines(texts.filter(sound)), schema=told)
        others = None if beside is None else beside.filter(sound)
        yield conform(_side_by_side(frame, others), stream, place, numbers.filter(sound))
    broken = ~sound & (texts.str.strip_chars() != "") if skip_empty else ~sound
    if broken.any():
        found = pl.DataFrame({"row": numbers.filter(broken), "content": texts.filter(broken)})
        found = found.with_columns(place=pl.lit(place), reason=pl.lit("not a JSON object"))
        yield Chunk(no_rows(stream), found.select(list(REJECT_SCHEMA)).cast(pl.Schema(REJECT_SCHEMA)))


def _are_objects(texts: pl.Series) -> pl.Series:
    """Which texts are JSON objects. A text in quotes may contain one, too; the first character tells them apart."""
    parsed = texts.str.json_path_match("$").is_not_null()
    return parsed & texts.str.strip_chars().str.starts_with("{")


def _reads(texts: pl.Series) -> bool:
    try:
        return pl.read_ndjson(_as_lines(texts), schema={"@": pl.String()}).height == len(texts)
    except pl.exceptions.ComputeError:
        return False


def _as_lines(texts: pl.Series) -> io.BytesIO:
    return io.BytesIO("\n".join(texts).encode())


def _side_by_side(frame: pl.DataFrame, beside: pl.DataFrame | None) -> pl.DataFrame:
    return frame if beside is None else frame.hstack(beside)


def no_rows(stream: BaseStream) -> pl.DataFrame:
    """No row of a stream, with its declared columns and its times."""
    interval = (FROM, UNTIL)[: len(stream.time_columns)]
    payload = {name: polars_type(kind) for name, kind in stream.columns}
    return pl.DataFrame(schema={**payload, **dict.fromkeys(interval, pl.Int64())})
