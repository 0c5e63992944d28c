"""Whether an engine's answer is the answer: the same rows, whatever their order, counted and hashed."""

from __future__ import annotations

from pathlib import Path

import polars as pl

Fingerprint = tuple[int, int]


def fingerprint(answer: pl.DataFrame) -> Fingerprint:
    """How many rows, and a sum of their hashes: the same for every order."""
    if answer.height == 0:
        return 0, 0
    return answer.height, int(answer.hash_rows(seed=7).sum() or 0)


def read(place: Path, engine: str, work: str, columns: tuple[str, ...], data: Path, kind: str) -> pl.DataFrame:
    """The results below `place` as a frame with the columns of the answer."""
    found = _files(place, columns)
    if "uid" in found.columns:  # Pathway's name for a column that is called id: its rows have an id of their own
        found = found.rename({"uid": "id"})
    if engine == "strandline" and work == "aggregate":
        found = _at_events(found, _input(data, kind))
    if engine == "strandline" and work == "distinct":
        found = _coalesced(found)
    if engine == "strandline" and work in ("q5", "q7", "q8"):
        found = _per_window(found, 2 if work == "q5" else 10)
    if engine == "strandline" and work in ("q4", "q6"):
        found = found.filter(pl.col("valid_until").is_null())  # what holds at the end holds for ever
    if engine == "strandline" and work in ("q1", "q4", "q6"):
        found = found.rename({"price": columns[-1] if work != "q1" else "euro"})
    found = _thousandths(found, [column for column in ("euro", "average") if column in columns])
    if "diff" in found.columns:  # Pathway: an update is a row taken back and a row put in its place
        found = found.group_by(columns).agg(pl.col("diff").sum())
        assert bool(found["diff"].is_in([0, 1]).all()) or work.startswith(("join", "filter", "q")), "a row counts once"
        found = found.filter(pl.col("diff") > 0).select(pl.col(columns).repeat_by("diff").explode())
    return found.select(pl.col(column).cast(_kind(found.schema[column])) for column in columns)


def _kind(kind: pl.DataType) -> pl.DataType | type[pl.DataType]:
    return pl.Int64 if kind.is_integer() or kind.is_decimal() else kind


def _files(place: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    parquet = [p for p in place.rglob("*.parquet") if "/." not in str(p.relative_to(place)) and _is_result(p, place)]
    if parquet:
        return pl.concat(pl.read_parquet(path) for path in sorted(parquet))
    texts = [p for p in place.rglob("*") if p.is_file() and _is_result(p, place) and p.stat().st_size]
    frames = []
    for path in sorted(texts):
        with path.open() as file:
            headed = file.readline().strip().replace('"', "").replace("uid", "id").split(",")[: len(columns)] == list(
                columns
            )
        frame = pl.read_csv(path, has_header=headed, infer_schema_length=None)
        frames.append(frame if headed else frame.rename(dict(zip(frame.columns, columns, strict=True))))
    if not frames:
        return pl.DataFrame(schema=dict.fromkeys(columns, pl.Int64()))
    return pl.concat(frames)


def _is_result(path: Path, place: Path) -> bool:
    """Not what engines keep beside their results: checkpoints, a table, logs of commits, checksums."""
    parts = path.relative_to(place).parts
    return (
        not {"checkpoint", "table"}.intersection(parts)
        and not any(part[0] in "_" for part in parts)
        and path.suffix != ".crc"
    )


def _input(data: Path, kind: str) -> pl.DataFrame:
    files = f"{data}/pieces/a/*.{kind}"
    return pl.read_parquet(files) if kind == "parquet" else pl.read_csv(files)


def _at_events(found: pl.DataFrame, events: pl.DataFrame) -> pl.DataFrame:
    """strandline's answer changes when rows come and when they expire; the others tell it when rows come."""
    moments = events.select("k", "t").unique()
    began = found.with_columns(pl.col("valid_from").dt.epoch("us").alias("t"))
    return began.join(moments, on=["k", "t"], how="semi")


def _per_window(found: pl.DataFrame, slide_s: int) -> pl.DataFrame:
    """An answer of strandline's about a window is valid until the window jumps, and longer if the next is the same.

    The window that ends at u is the one at the last instant before u.
    """
    slide = slide_s * 1_000_000
    first = -(-(pl.col("valid_from").dt.epoch("us") + 1) // slide) * slide
    ends = pl.int_ranges(first, pl.col("valid_until").dt.epoch("us") + 1, slide)
    return found.with_columns(ends.alias("u")).explode("u").filter(pl.col("u").is_not_null())


def _thousandths(found: pl.DataFrame, columns: list[str]) -> pl.DataFrame:
    """Decimals, floats and fractions of one value in one form."""
    return found.with_columns((pl.col(column).cast(pl.Float64) * 1000).round().cast(pl.Int64) for column in columns)


def _coalesced(found: pl.DataFrame) -> pl.DataFrame:
    """Intervals that touch as one: a batch may end in the middle of one."""
    pieces = found.select(
        "k", pl.col("valid_from").dt.epoch("us").alias("t"), pl.col("valid_until").dt.epoch("us").alias("u")
    ).sort("k", "t")
    starts = (pl.col("t") > pl.col("u").shift(1)).fill_null(True)
    marked = pieces.with_columns(starts.cum_sum().over("k").alias("island"))
    return marked.group_by("k", "island").agg(pl.col("t").min(), pl.col("u").max())
