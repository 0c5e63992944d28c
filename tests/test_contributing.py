"""The example "Add a scalar function" of CONTRIBUTING.md, followed word for word in a copy of the tree."""

from __future__ import annotations

import filecmp
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = (ROOT / "CONTRIBUTING.md").read_text().partition("## Add a scalar function\n")[2].partition("\n## ")[0]
BLOCKS = dict(re.findall(r"^```([^\n]+)\n(.*?)^```$", EXAMPLE, re.MULTILINE | re.DOTALL))
FAMILY, CASES = re.findall(r"^\d\. In `([^`]+)`", EXAMPLE, re.MULTILINE)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of sources and tests with the two changes of the example."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    source = (copy / FAMILY).read_text()
    end = source.index("\n)", source.index("\nFAMILY: Final = (")) + 1
    (copy / FAMILY).write_text(source[:end] + BLOCKS["python entry"] + source[end:])
    (copy / CASES).write_text(f"{(copy / CASES).read_text()}\n{BLOCKS['text case']}")
    return copy


def run(tree: Path, *command: str) -> str:
    path = os.pathsep.join((f"{tree / 'src'}", f"{tree / 'tests'}"))
    environment = {**os.environ, "PYTHONPATH": path, "STRANDLINE_COSTS": "built-in"}
    done = subprocess.run([sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def changed(tree: Path) -> Iterator[str]:
    for path in (path for name in ("src", "tests") for path in (tree / name).rglob("*") if path.is_file()):
        relative = path.relative_to(tree)
        if "__pycache__" not in relative.parts and not filecmp.cmp(path, ROOT / relative, shallow=False):
            yield relative.as_posix()


def test_two_files_are_touched(tree: Path) -> None:
    assert sorted(changed(tree)) == sorted((FAMILY, CASES))


def test_the_command_of_the_example_passes(tree: Path) -> None:
    pytest_, *arguments = shlex.split(BLOCKS["sh"])
    passed = run(tree, "-m", pytest_, *arguments, "-rp", "-p", "no:cacheprovider", "-p", "no:xdist")
    for test in (
        "test_every_function_at_the_edges[bit_length]",  # the reference and Polars
        "test_at_the_edges_of_types[duckdb-bit_length]",
        "test_at_special_values[duckdb-bit_length]",
        "test_on_the_local_engine[1-1-expressions: the bits of a text]",  # SQL
    ):
        assert f"::{test}\n" in passed, test


EXPLAINED = """
import strandline as sl
from strandline.apps.shell.words import functions

with sl.connect(engine="local") as database:
    database.sql("CREATE STREAM s (x VARCHAR, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITH (rate = 1000000)")
    for function in ("octet_length", "bit_length", "length"):
        print(database.sql(f"EXPLAIN SELECT {function}(x) AS y FROM s"))
print(functions()["bit_length"])
"""


def test_explain_knows_its_cost_and_the_shell_its_line(tree: Path) -> None:
    shown = run(tree, "-c", EXPLAINED)
    cheap, chosen, dear = map(float, re.findall(r"([\d.]+) +Project y := ", shown))
    assert cheap < chosen < dear, "octet_length costs next to nothing and length 15 ns"
    assert shown.endswith("The number of bits in UTF-8.\n")
