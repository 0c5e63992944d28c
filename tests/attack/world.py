"""What trials need: a Spark that stays, and for each scenario an undisturbed run with images of its crashes."""

from __future__ import annotations

import contextlib
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

import strandline as sl
from attack import hook
from attack.scenarios import Scenario, scenarios
from attack.tree import copy_tree, file_kind, files_of
from attack.verdict import Verdict
from strandline.core.errors import StrandlineError
from strandline.database.database import Database
from strandline.runtime.kernels.changes import coalesce

HERE: Final = Path(__file__).parent
RUN_SECONDS: Final = 60.0  # a restart takes about one; a run that takes so long hangs
BASE_SECONDS: Final = 240.0  # with everybody stopped for every image
BUCKETS: Final = 2

Results = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """The directory of a run as kill -9 at some moment would leave it."""

    path: Path
    label: str  # the operation that did not happen
    commits: int

    @cached_property
    def files(self) -> dict[str, list[str]]:
        """Relative paths by kind of file."""
        kinds: dict[str, list[str]] = {}
        for relative in files_of(self.path):
            kinds.setdefault(file_kind(relative), []).append(relative)
        return kinds


@dataclass(frozen=True)
class Base:
    """An undisturbed run: its results, its images in order, and how another run of the same left its directory."""

    scenario: Scenario
    live: Path  # the directory that the run had
    images: list[Image]
    final: Path
    twin: Path
    expected: Results

    def images_with(self, kind: str) -> list[Image]:
        return [image for image in self.images if image.files.get(kind)]


@dataclass(frozen=True)
class Outcome:
    """How a run ended: with results, with an error, or not in time."""

    results: Results | None = None
    code: str | None = None
    text: str = ""
    screen: str = ""


class World:
    """The Spark, the directories and the base runs of one attacking process."""

    def __init__(self, directory: Path, names: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.names = names or tuple(scenarios())  # of the scenarios that are attacked
        self.control = directory / "control"
        self.control.mkdir(parents=True, exist_ok=True)
        self._bases: dict[str, Base] = {}
        self._root: Database | None = None
        self._numbers = 0
        self._is_warm = False  # the first run loads and compiles

    @staticmethod
    def make_environment(control: Path) -> dict[str, str]:
        """The environment in which the processes of a run are watched."""
        tests = str(HERE.parent)
        path = [str(HERE / "preload"), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), tests]
        return {hook.CONTROL: str(control), "PYTHONPATH": os.pathsep.join(dict.fromkeys(path))}

    @property
    def spark(self) -> Any:
        if self._root is None:
            os.environ.update(self.make_environment(self.control))
            hook.install()
            self._root = sl.connect()
            self._root.warm()
        return self._root.spark

    def close(self) -> None:
        if self._root is not None:
            self._root.close()
            self._root = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def connect(self, scenario: Scenario, live: Path, **options: Any) -> Database:
        if scenario.own_checkpoint:
            options["checkpoint"] = live / "out" / ".strandline" / "checkpoint"
        options.setdefault("tables", live / "out" / ".strandline" / "tables")
        return sl.connect(spark=self.spark, batch_rows=scenario.batch_rows, shards=BUCKETS, **options)

    # ---- base runs ---------------------------------------------------------------------------------------------------

    def base(self, name: str) -> Base:
        for attempt in range(4):
            if name in self._bases:
                break
            shutil.rmtree(self.directory / name, ignore_errors=True)
            try:
                self._bases[name] = self._make_base(scenarios()[name])
            except (
                AssertionError
            ):  # a run that does not stand being stopped and continued; `kill/stopped and continued` is about that
                if attempt == 3:
                    raise
        return self._bases[name]

    def _make_base(self, scenario: Scenario) -> Base:
        """Run the scenario twice: with images, and once more for files of another run."""
        home = self.directory / scenario.name
        live, images = home / "live", home / "images"
        images.mkdir(parents=True)
        scenario.prepare(live)
        copy_tree(live, home / "fresh")
        spark = self.spark  # so that the family is complete
        assert spark is not None
        twin = home / "twin"
        outcome = self._run(scenario, live, first=True)
        assert outcome.results is not None, f"{scenario.name} without an attack: {outcome}"
        os.rename(live, twin)
        copy_tree(home / "fresh", live)
        with self._photographed(live, images):
            outcome = self._run(scenario, live, first=True)
        assert outcome.results is not None, f"{scenario.name} while images are taken: {outcome}"
        self.forget()
        copy_tree(live, home / "final")
        made = [_image(path) for path in sorted(filter(Path.is_dir, images.iterdir()))]
        if scenario.is_given:  # what a program had not given yet, nobody would give after a restart
            made = [image for image in made if (image.path / "in" / "given").exists()]
        made = made[:: max(1, len(made) // 300)]
        base = Base(scenario, live, made, home / "final", twin, outcome.results)
        shutil.rmtree(live)
        return base

    @contextlib.contextmanager
    def _photographed(self, live: Path, images: Path) -> Iterator[None]:
        """Take images before file operations of Python, and at random moments for those of the JVM."""
        (self.control / "count").unlink(missing_ok=True)
        with self._ordered(root=str(live), images=str(images), share=0.3):
            yield

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Stop this process, and all of its Spark, at random moments."""
        with self._ordered(pause=True):
            yield

    @contextlib.contextmanager
    def _ordered(self, **orders: Any) -> Iterator[None]:
        hook.write_orders(self.control, pid=os.getpid(), **orders)
        chance = subprocess.Popen([sys.executable, str(HERE / "chance.py"), str(self.control)])
        try:
            yield
        finally:
            hook.write_orders(self.control)
            chance.wait()  # it leaves by itself: killed in the midst of an image it would leave everybody stopped

    def forget(self) -> None:
        """Let this process, and workers that Spark has kept, forget what they know of files."""
        self._numbers += 1
        hook.write_orders(self.control, number=self._numbers)
        hook.forget_caches()

    # ---- trials ------------------------------------------------------------------------------------------------------

    def stage(self, base: Base, tree: Path) -> Path:
        """A copy of a tree in the place where it may be restarted."""
        self.forget()
        shutil.rmtree(base.live, ignore_errors=True)
        copy_tree(tree, base.live)
        return base.live

    def resume(self, scenario: Scenario, live: Path, **options: Any) -> Outcome:
        return self._run(scenario, live, **options)

    def _run(self, scenario: Scenario, live: Path, first: bool = False, **options: Any) -> Outcome:
        with watched_screen() as screen:
            outcome = self._run_quietly(scenario, live, first, options)
        return Outcome(outcome.results, outcome.code, outcome.text, screen())

    def _run_quietly(self, scenario: Scenario, live: Path, first: bool, options: dict[str, Any]) -> Outcome:
        end = time.monotonic() + (RUN_SECONDS if self._is_warm and not first else BASE_SECONDS)
        try:
            with self.connect(scenario, live, **options) as database:
                queries = scenario.start(database, live)
                if first and scenario.feed is not None:
                    scenario.feed()
                    (live / "in" / "given").touch()
                for query in queries:
                    if not query.await_end(max(0.1, end - time.monotonic())):
                        return Outcome(code="hang", text=str(query.metrics()))
        except StrandlineError as error:
            return Outcome(code=error.code, text=error.render())
        except Exception as error:
            return Outcome(code="internal", text=f"{type(error).__name__}: {error}")
        self._is_warm = True
        try:
            return Outcome(read_results(live / "out"))
        except (pa.ArrowException, OSError, sqlite3.Error) as error:
            return Outcome({"unreadable": [str(error)]})

    def judge(self, base: Base, outcome: Outcome, refuse: Callable[[Outcome], Verdict]) -> Verdict:
        """The verdict on a restart; `refuse` judges errors."""
        if outcome.code == "hang":
            return Verdict("hang", outcome.text)
        if outcome.code is not None:
            return refuse(outcome)
        difference = differ(outcome.results or {}, base.expected)
        if difference:
            return Verdict("wrong", difference)
        return Verdict("exact")


def _image(path: Path) -> Image:
    label = path.with_name(path.name + ".label")
    text = label.read_text() if label.exists() else "at random"
    return Image(path, text, sum(1 for f in files_of(path) if re.search(r"/spark/commits/\d+$", f)))


@contextlib.contextmanager
def watched_screen() -> Iterator[Callable[[], str]]:
    """What this process writes to its standard error meanwhile, whoever in it does."""
    said = ""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield lambda: said
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            said = file.read().decode(errors="replace")


# ---- results ---------------------------------------------------------------------------------------------------------


def read_results(out: Path) -> Results:
    """What plain readers find: the elements of each query with cuts taken out, late and rejected rows, tables."""
    results: Results = {}
    for directory in sorted(path for path in out.iterdir() if path.is_dir() and not path.name.startswith((".", "_"))):
        files = [file for file in directory.glob("*.parquet") if not file.name.startswith((".", "_"))]
        if files:
            results[directory.name] = _joined([pq.read_table(file) for file in sorted(files)])
    for aside in ("_late", "_rejected"):
        for directory in sorted((out / aside).glob("*/")):
            tables = [pq.read_table(file) for file in sorted(directory.glob("*.parquet"))]
            if tables:
                rows = [repr(sorted(row.items())) for table in tables for row in table.to_pylist()]
                results[f"{aside}/{directory.name}"] = sorted(re.sub(r"/\S*/in/", "", row) for row in rows)
    for file in sorted(out.glob("*.sqlite")):
        for table, elements in _read_tables(file):
            results[f"{file.name} {table}"] = _joined([elements])
    return results


def _joined(tables: list[pa.Table]) -> pl.DataFrame:
    frame = pl.from_arrow(pa.concat_tables(tables))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.rename({"valid_from": "@from", "valid_until": "@until"})
    times = pl.col("@from", "@until").dt.epoch("us")
    frame = frame.with_columns(times).with_columns(pl.col("@until").fill_null(2**63 - 1))
    payload = [c for c in frame.columns if not c.startswith("@")]
    return coalesce(frame, payload).sort([*payload, "@from", "@until"])


def _read_tables(file: Path) -> Iterator[tuple[str, pa.Table]]:
    """The tables of elements in a database, by name."""
    with contextlib.closing(sqlite3.connect(file)) as database:
        names = [row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for name in names:
            if name.startswith("strandline"):
                continue
            cursor = database.execute(f'SELECT * FROM "{name}"')
            rows = pl.DataFrame(cursor.fetchall(), [column[0] for column in cursor.description], orient="row")
            times = pl.col("valid_from", "valid_until").cast(pl.String).str.to_datetime(time_unit="us", time_zone="UTC")
            yield name, rows.with_columns(times).to_arrow()


def differ(actual: Results, expected: Results) -> str:
    """Where results differ from those expected; empty if nowhere."""
    for name in sorted({*actual, *expected}):
        one, two = actual.get(name), expected.get(name)
        if one is None or two is None:
            return f"{name} is {'missing' if one is None else 'there, but should not be'}"
        same = one.equals(two) if isinstance(one, pl.DataFrame) else one == two
        if not same:
            return f"{name} has {len(one)} rows instead of {len(two)}, or others"
    return ""


def pick(dice: random.Random, images: list[Image]) -> Image:
    """An image, those of all batches alike; about the same one for the same dice, though no two base runs are alike."""
    batches = sorted({image.commits for image in images})
    chosen = batches[int(dice.random() * len(batches))]
    candidates = [image for image in images if image.commits == chosen]
    return candidates[int(dice.random() * len(candidates))]
