"""Figures as text: a line while it runs, tables in docs/benchmarks.md."""

from __future__ import annotations

import platform
import re
from datetime import date
from pathlib import Path
from typing import Any

import psutil
from works import ENGINES, WORKS

Figures = dict[str, Any]
BEGIN, END = "<!-- peers -->", "<!-- end of peers -->"


def machine() -> Figures:
    """What the figures depend on; nothing that names the machine."""
    model = platform.processor() or platform.machine()
    about = Path("/proc/cpuinfo")
    if about.exists() and (named := re.search(r"model name\s*: (.*)", about.read_text())):
        model = named[1]
    return {
        "date": date.today().isoformat(),
        "cpu": model,
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }


def line(figures: Figures) -> str:
    name = f"{figures['engine']:<10}"
    if "rows_per_s" not in figures:
        return f"{name} {figures['problem']}"
    latency = figures.get("latency", {})
    delays = f", p50 {latency['p50_ms']} ms, p99 {latency['p99_ms']} ms" if "p50_ms" in latency else ""
    return (
        f"{name} {figures['rows_per_s']:>12,} rows/s, {figures['cpu_seconds']:.2f} CPU s, "
        f"{figures['peak_memory_mb']:,.0f} MB{delays}, {_same(figures)}"
    )


def _same(figures: Figures) -> str:
    if figures.get("same"):
        return "same answer"
    return f"another answer ({figures.get('results', '?')} rows)"


def tables(document: Figures) -> str:
    about = document["machine"]
    found = document["figures"]
    versions = {ENGINES[each["engine"]].title: each["version"] for each in found if "version" in each}
    parts = [
        f"Measured on {about['date']}: {about['cores']} cores of {about['cpu']}, {about['memory_gb']} GB, "
        f"{about['system']}, Python {about['python']}. Best of up to {document['repeat']} runs; "
        f"all of it took {round(document['seconds'] / 60)} minutes.",
        "Versions: " + "; ".join(f"{name} {version}" for name, version in versions.items()) + ".",
    ]
    for name, work in WORKS.items():
        rows = [each for each in found if each["work"] == name]
        if rows:
            parts += [f"### {work.title[0].upper()}{work.title[1:]}", _table(rows)]
            parts[-2] += f"\n\n{rows[0]['rows']:,} rows. The answer: {work.answer}."
    return "\n\n".join(parts)


HEADS = ("engine", "rows/s", "strandline is", "CPU s", "memory MB", "p50 ms", "p99 ms", "answer")


def _table(rows: list[Figures]) -> str:
    loads = any("load_seconds" in each for each in rows)  # of a table
    heads = (*HEADS[:-1], "load s", HEADS[-1]) if loads else HEADS
    ours = next((each.get("rows_per_s") for each in rows if each["engine"] == "strandline"), None)
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 2) + " --- |"]
    for each in rows:
        cells = _cells(each, ours)
        if loads:
            cells.insert(-1, f"{each['load_seconds']:.1f}" if "load_seconds" in each else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cells(each: Figures, ours: int | None) -> list[str]:
    title = ENGINES[each["engine"]].title
    if "rows_per_s" not in each:
        return [title, "", "", "", "", "", "", each["problem"].replace("|", "/")]
    latency = each.get("latency", {})
    factor = f"{ours / each['rows_per_s']:.2g} ×" if ours and each["engine"] != "strandline" else ""
    told = "the same" if each.get("same") else each.get("problem") or f"another, {each.get('results')} rows"
    return [
        title, f"{each['rows_per_s']:,}", factor, f"{each['cpu_seconds']:.1f}", f"{each['peak_memory_mb']:,.0f}",
        str(latency.get("p50_ms", "")), str(latency.get("p99_ms", "")), told,
    ]  # fmt: skip


def write(text: str, path: Path) -> None:
    """Replace what stands between the marks."""
    page = path.read_text()
    head, rest = page.split(BEGIN, 1)
    _, tail = rest.split(END, 1)
    path.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")
