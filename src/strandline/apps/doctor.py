"""Check of the installation: requirements, findings and remedies on one screen."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, TypeAlias

from rich.text import Text

from strandline.connectors.registry import connectors
from strandline.core.errors import StrandlineError
from strandline.engines.spark.launcher.java import find_java
from strandline.engines.spark.launcher.jvm import pyspark_directory
from strandline.engines.spark.launcher.session import first_job, start
from strandline.engines.spark.launcher.settings import archive_file, usable_cores, usable_memory

State: TypeAlias = Literal["ok", "warning", "problem"]

GIB: Final = 1024**3
LITTLE_MEMORY: Final = 2 * GIB  # Spark's JVM and a few workers fit, with little memory for state
LITTLE_SPACE: Final = 5 * GIB
NO_SPACE: Final = GIB // 2

PACKAGES: Final = ("pyspark", "pyarrow", "polars", "pandas", "numpy")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line of the report, with a `remedy` where one is needed."""

    subject: str
    state: State
    text: str
    remedy: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Findings in the order of their dependencies."""

    findings: tuple[DoctorFinding, ...]

    @property
    def ok(self) -> bool:
        """True if strandline is ready. Warnings do not count."""
        return all(finding.state != "problem" for finding in self.findings)


def examine(start_spark: bool = True) -> Report:
    """Examine this machine. Starting Spark is the only check that takes seconds, and the only conclusive one."""
    # An older Python cannot read this.
    python = DoctorFinding("Python", "ok", f"{platform.python_version()} ({sys.executable})")
    findings = [python, *_packages(), *_java(), _machine(), _temporary_directory(), *_programs()]
    if start_spark:
        if all(finding.state != "problem" for finding in findings):
            findings += _spark()
        else:
            findings.append(DoctorFinding("Spark", "warning", "not tried", "Fix the problems above first."))
    return Report(tuple(findings))


def render(report: Report) -> Text:
    """The report as styled text; `.plain` is the text alone."""
    marks: dict[State, tuple[str, str]] = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "red")}
    width = max((len(finding.subject) for finding in report.findings), default=0)
    text = Text()
    for finding in report.findings:
        mark, style = marks[finding.state]
        text.append(mark, style).append(f" {finding.subject:<{width}}  {finding.text}\n")
        if finding.remedy:
            text.append(f"  {'':<{width}}  → {finding.remedy}\n", "bold" if finding.state == "problem" else "dim")
    _append_connectors(text)
    verdict = "strandline is ready." if report.ok else "strandline is not ready."
    return text.append(verdict, "green" if report.ok else "red")


def _append_connectors(text: Text) -> None:
    """Traits of sources and sinks, a line each."""
    available = connectors()
    width = max(len(item.name) for item in available)
    for item in available:
        promises = " ".join(
            (name if getattr(item.traits, name) else "–").ljust(len(name))
            for name in ("replayable", "ordered", "idempotent")
        )
        text.append(f"  {item.direction:<6} {item.name:<{width}}  {promises}  {item.traits.note}\n")
        if item.missing is not None:
            text.append(
                f"  {'':<6} {'':<{width}}  → Run `pip install 'strandline[{item.missing}]'` to use it.\n", "dim"
            )


def _packages() -> Iterator[DoctorFinding]:
    """The packages whose versions matter, against our requirements."""
    try:
        yield DoctorFinding("strandline", "ok", importlib.metadata.version("strandline"))
        required = _requirements()
    except importlib.metadata.PackageNotFoundError:
        yield DoctorFinding("strandline", "warning", "runs from source, not installed", "Run `pip install -e .`.")
        required = {}
    for package in PACKAGES:
        asked = required.get(package, "")
        remedy = f"Run `pip install '{package}{asked}'`."
        try:
            version = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            yield DoctorFinding(package, "problem", "not installed", remedy)
            continue
        if satisfies(version, asked):
            yield DoctorFinding(package, "ok", version)
        else:
            yield DoctorFinding(package, "problem", f"{version}, but strandline needs {asked}", remedy)


def _requirements() -> dict[str, str]:
    """Package to version range, as `<4.4,>=4.3`."""
    lines = importlib.metadata.requires("strandline") or []
    matches = (re.match(r"([A-Za-z0-9_.-]+)\s*([<>=!~][^;\s]*)?", line) for line in lines)
    return {match[1].lower(): match[2] or "" for match in matches if match}


def satisfies(version: str, asked: str) -> bool:
    """True if a version is in a range of `>=` and `<` bounds; other kinds of bounds are ignored."""
    bounds = [bound.strip() for bound in asked.split(",")]
    at_least = all(_numbers(version) >= _numbers(bound[2:]) for bound in bounds if bound.startswith(">="))
    return at_least and all(_numbers(version) < _numbers(bound[1:]) for bound in bounds if re.match(r"<\d", bound))


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version without zeros at the end: 4.3 and 4.3.0 are the same."""
    parts = [int(part) for part in re.findall(r"\d+", re.split(r"[a-zA-Z+]", version)[0])]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


def _java() -> Iterator[DoctorFinding]:
    try:
        java = find_java()
    except StrandlineError as error:
        yield DoctorFinding("Java", "problem", error.message, error.hint)
        return
    module = "" if java.vector_module else ", without the vector module (not needed)"
    yield DoctorFinding("Java", "ok", f"{java.version} from {java.origin} ({java.home}){module}")
    for note in java.notes:
        yield DoctorFinding("Java", "warning", f"skipped {note}")


def _machine() -> DoctorFinding:
    memory = usable_memory()
    text = f"{usable_cores()} cores, {memory / GIB:.1f} GiB of memory"
    if memory >= LITTLE_MEMORY:
        return DoctorFinding("machine", "ok", text)
    return DoctorFinding(
        "machine", "warning", text, "Large windows need more memory; give the container 2 GiB or more."
    )


def _temporary_directory() -> DoctorFinding:
    subject, remedy = "scratch", "Free disk space, or set TMPDIR to a directory with more."
    try:
        directory = Path(tempfile.gettempdir())
        with tempfile.NamedTemporaryFile(dir=directory) as file:
            file.write(b"x")
            file.flush()
        free = shutil.disk_usage(directory).free
    except OSError as error:
        return DoctorFinding(
            subject, "problem", f"cannot write a file ({error})", "Set TMPDIR to a writable directory."
        )
    text = f"{directory}, {free / GIB:.1f} GiB free"
    if free < NO_SPACE:
        return DoctorFinding(subject, "problem", text, remedy)
    if free < LITTLE_SPACE:
        return DoctorFinding(subject, "warning", text, remedy)
    return DoctorFinding(subject, "ok", text)


def _programs() -> Iterator[DoctorFinding]:
    """Hadoop sets the mode of the files that it writes by running chmod."""
    if shutil.which("chmod") is None:
        yield DoctorFinding("programs", "problem", "chmod is not on the PATH", "Install coreutils, or correct PATH.")


def _spark() -> Iterator[DoctorFinding]:
    """Start Spark, run a job on the workers, stop."""
    before = time.monotonic()
    try:
        session = start(warm=False)
    except StrandlineError as error:
        yield DoctorFinding("Spark", "problem", error.message, " ".join(filter(None, (error.detail, error.hint))))
        return
    try:
        started = time.monotonic()
        faster = (
            None if archive_file(session.java, pyspark_directory()).exists() else "`strandline warmup` halves this."
        )
        yield DoctorFinding("Spark", "ok", f"{session.spark.version} started in {started - before:.1f} s", faster)
        result = sorted(row["id"] for row in first_job(session.spark).collect())
        if result == list(range(len(result))) and result:
            yield DoctorFinding("workers", "ok", f"{len(result)} ran in {time.monotonic() - started:.1f} s")
        else:
            yield DoctorFinding("workers", "problem", f"wrong result {result}", f"See {session.log_file}.")
    except Exception as error:
        first = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
        yield DoctorFinding("workers", "problem", f"no result ({first})", f"See {session.log_file}.")
    finally:
        session.stop()
    yield DoctorFinding("log", "ok", str(session.log_file))
