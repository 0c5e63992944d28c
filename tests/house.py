"""Figures of the source tree: `make house`.

Size (lines, files over the limit, entries at top level), names (types that are declared twice), and the traced run of
the README's example on the local engine: functions, files, and changes from one package to another.
"""

from __future__ import annotations

import ast
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "strandline"
LONGEST_FILE = 500

STREAM = """CREATE STREAM trades (sym VARCHAR, price DOUBLE, qty INT, ts TIMESTAMP)
  SOURCE file('docs/examples/trades/*.csv') ORDERED BY ts WITHIN 2 SECONDS"""
QUERY = """SELECT sym, COUNT(*) AS trades, SUM(qty) AS shares
  FROM trades WINDOW(RANGE 10 MINUTES) WHERE price > 10 GROUP BY sym"""


def count_lines() -> dict[str, int]:
    return {str(path.relative_to(SOURCE)): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}


def list_entries() -> list[str]:
    """Folders and modules right below the package."""
    names = {path.relative_to(SOURCE).parts[0] for path in SOURCE.rglob("*.py")}
    return sorted(name for name in names if not name.startswith("__"))


def find_repeated_types() -> dict[str, list[str]]:
    """Public classes whose name is declared in more than one module, but for a logical node and its physical twin."""
    declared: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                declared.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    syntax = {f"sql/ast/{name}.py" for name in ("nodes", "expressions", "queries", "statements")}
    twins = syntax | {"logical/plan.py", "logical/expressions.py", "planner/physical/plan.py"}
    return {name: files for name, files in declared.items() if len(set(files) - twins) + bool(set(files) & twins) > 1}


class Tracer:
    """Counts the functions of ours that run, their files, and changes of package, in all threads."""

    def __init__(self) -> None:
        self.functions: Counter[tuple[str, str]] = Counter()
        self.first_changes = 0  # of package, between first calls of functions
        self.changes = 0  # between all calls
        self._first: dict[int, str] = {}
        self._last: dict[int, str] = {}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(str(SOURCE)) or frame.f_code.co_name.startswith("<"):
            return
        module = Path(name).relative_to(SOURCE)
        self.functions[str(module), frame.f_code.co_qualname] += 1
        package, thread = module.parts[0], threading.get_ident()
        self.changes += self._last.get(thread, package) != package
        self._last[thread] = package
        if self.functions[str(module), frame.f_code.co_qualname] == 1:
            self.first_changes += self._first.get(thread, package) != package
            self._first[thread] = package

    def start(self) -> None:
        threading.setprofile(self)
        sys.setprofile(self)

    def stop(self) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    @property
    def files(self) -> int:
        return len({file for file, _ in self.functions})


def trace_example() -> Tracer:
    import strandline as sl

    tracer = Tracer()
    with sl.connect(engine="local") as database:
        tracer.start()
        try:
            database.sql(STREAM)
            query = database.sql(QUERY)
            query.await_end()
            query.results()
        finally:
            tracer.stop()
    return tracer


def main() -> None:
    lines = count_lines()
    long = {name: count for name, count in sorted(lines.items()) if count > LONGEST_FILE}
    entries, repeated = list_entries(), find_repeated_types()
    print(f"{sum(lines.values()):,} lines in {len(lines)} files")
    print(f"{len(entries)} entries at top level: {', '.join(entries)}")
    print(f"{len(long)} files over {LONGEST_FILE} lines: {', '.join(f'{n} {c}' for n, c in long.items())}")
    print(f"{len(repeated)} type names are declared more than once: {', '.join(sorted(repeated))}")
    tracer = trace_example()
    print(
        f"README's example: {len(tracer.functions)} functions in {tracer.files} files, "
        f"{tracer.changes} changes of package, {tracer.first_changes} between first calls"
    )


if __name__ == "__main__":
    main()
