"""`strandline warmup`: what later starts would do once more is done now and kept."""

from __future__ import annotations

import importlib
import pkgutil
import time
from collections.abc import Callable

import strandline.runtime.kernels
from strandline.engines.spark.launcher.session import build_archive
from strandline.runtime.kernels import compiled


def prepare(note: Callable[[str], None]) -> list[str]:
    """Compile the loops of the operators, and write Spark's class archive; a line about each."""
    began = time.monotonic()
    note("compiling")
    for module in pkgutil.iter_modules(strandline.runtime.kernels.__path__):
        importlib.import_module(f"{strandline.runtime.kernels.__name__}.{module.name}")
    compiled.load_all()
    lines = [f"machine code of operators: ready after {time.monotonic() - began:.1f} s"]
    began = time.monotonic()
    note("writing the class archive of Spark, once")
    archive = build_archive()
    if archive is None:
        return [*lines, "class archive: another process is writing it"]
    size = archive.stat().st_size / 2**20
    return [*lines, f"class archive: {size:.0f} MB in {archive}, after {time.monotonic() - began:.1f} s"]
