"""The worked examples of CONTRIBUTING.md, followed word for word in copies of the tree."""

from __future__ import annotations

import filecmp
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "CONTRIBUTING.md").read_text()


# ---- examples --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A file of an example, and the blocks that change it: what their fences say, and their content."""

    file: str
    blocks: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Example:
    """The files of a worked example, and the command that tests it."""

    steps: tuple[Step, ...]
    command: str

    @property
    def files(self) -> list[str]:
        return sorted(step.file for step in self.steps)


def read_example(heading: str) -> Example:
    """A section of the page: steps `1. In `file`, …` with the blocks below them, then the command."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    [command] = [content for kind, content in read_blocks(section) if kind == "sh"]
    parts = re.split(r"^\d\. In `([^`]+)`", section, flags=re.MULTILINE)[1:]
    steps = [Step(file, tuple(read_blocks(text))) for file, text in zip(parts[::2], parts[1::2], strict=True)]
    return Example(tuple(steps), command)


def read_blocks(text: str) -> list[tuple[str, str]]:
    return re.findall(r"^```([^\n]+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def follow(example: Example, tree: Path) -> None:
    """Make a copy of sources and tests, with the changes of an example."""
    for name in ("src", "tests"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    for step in example.steps:
        for kind, content in step.blocks:
            change_file(tree / step.file, kind, content)


def change_file(path: Path, kind: str, content: str) -> None:
    text = path.read_text() if path.exists() else ""
    match kind:
        case "python entry":
            end = text.index("\n)", text.index("\nFAMILY: Final = (")) + 1
            path.write_text(text[:end] + content + text[end:])
        case "python add":
            path.write_text(f"{text}\n\n{content}" if text else content)
        case "text case":
            path.write_text(f"{text}\n{content}" if text else content)
        case "diff":
            path.write_text(apply_difference(text, content))


def apply_difference(text: str, difference: str) -> str:
    """Apply parts that begin with `@@`: lines that stay, `-` lines that go, `+` lines that come."""
    for part in difference.removeprefix("@@\n").split("\n@@\n"):
        lines = part.splitlines()
        before = "".join(f"{line[1:]}\n" for line in lines if not line.startswith("+"))
        assert text.count(before) == 1, f"{text.count(before)} places for\n{part}"
        text = text.replace(before, "".join(f"{line[1:]}\n" for line in lines if not line.startswith("-")))
    return text


def run(tree: Path, *command: str) -> str:
    path = os.pathsep.join((f"{tree / 'src'}", f"{tree / 'tests'}"))
    environment = {**os.environ, "PYTHONPATH": path, "STRANDLINE_COSTS": "built-in"}
    done = subprocess.run([sys.executable, *command], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_tests(tree: Path, command: str) -> str:
    """The names of the tests that a command of the page runs, one on a line; all pass."""
    pytest_, *arguments = shlex.split(command)
    return run(tree, "-m", pytest_, *arguments, "-rp", "-p", "no:cacheprovider", "-p", "no:xdist")


def changed(tree: Path) -> Iterator[str]:
    for path in (path for name in ("src", "tests") for path in (tree / name).rglob("*") if path.is_file()):
        relative = path.relative_to(tree)
        if "__pycache__" in relative.parts:
            continue
        if not (ROOT / relative).exists() or not filecmp.cmp(path, ROOT / relative, shallow=False):
            yield relative.as_posix()


# ---- a scalar function -----------------------------------------------------------------------------------------------

FUNCTION = read_example("Add a scalar function")


@pytest.fixture(scope="module")
def function_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("function")
    follow(FUNCTION, tree)
    return tree


def test_a_function_touches_two_files(function_tree: Path) -> None:
    assert sorted(changed(function_tree)) == FUNCTION.files
    assert len(FUNCTION.files) == 2


def test_the_command_for_a_function_passes(function_tree: Path) -> None:
    passed = run_tests(function_tree, FUNCTION.command)
    for test in (
        "test_every_function_at_the_edges[bit_length]",  # the reference and Polars
        "test_at_the_edges_of_types[duckdb-bit_length]",
        "test_at_special_values[duckdb-bit_length]",
        "test_on_the_local_engine[expressions: the bits of a text-",  # SQL
    ):
        assert f"::{test}" in passed, test


EXPLAINED = """
import strandline as sl
from strandline.apps.shell.inputs import functions

with sl.connect(engine="local") as database:
    database.sql("CREATE STREAM s (x VARCHAR, ts TIMESTAMP) SOURCE events() ORDERED BY ts WITH (rate = 1000000)")
    for function in ("octet_length", "bit_length", "length"):
        print(database.sql(f"EXPLAIN SELECT {function}(x) AS y FROM s"))
print(functions()["bit_length"])
"""


def test_explain_knows_its_cost_and_the_shell_its_line(function_tree: Path) -> None:
    shown = run(function_tree, "-c", EXPLAINED)
    cheap, chosen, dear = map(float, re.findall(r"([\d.]+) +MON +Project y := ", shown))
    assert cheap < chosen < dear, "octet_length costs next to nothing and length 15 ns"
    assert shown.endswith("The number of bits in UTF-8.\n")


# ---- a rule ----------------------------------------------------------------------------------------------------------

RULE = read_example("Add a rule")


@pytest.fixture(scope="module")
def rule_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("rule")
    follow(RULE, tree)
    return tree


def test_a_rule_touches_three_files(rule_tree: Path) -> None:
    assert sorted(changed(rule_tree)) == RULE.files
    assert len(RULE.files) == 3


def test_the_command_for_a_rule_passes(rule_tree: Path) -> None:
    passed = run_tests(rule_tree, RULE.command)
    for test in (
        "test_rule_makes_the_expected_plans[drop_true_filter: every row passes]",
        "test_rule_makes_the_expected_plans[drop_true_filter: no row passes]",
        "test_every_rule_has_a_case_where_it_fires_and_one_where_it_does_not",
        "test_rule_fires_and_keeps_the_answer[drop_true_filter: every row passes]",
    ):
        assert f"::{test}\n" in passed, test


OPTIMISED = """
import strandline as sl
import test_docs

with sl.connect(engine="local") as database:
    database.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    print(database.sql("EXPLAIN SELECT x FROM s WHERE TRUE").partition("physical plan")[2])
print(test_docs.show_rules_of_stages())
"""


def test_the_optimizer_applies_it_and_the_page_has_its_line(rule_tree: Path) -> None:
    shown = run(rule_tree, "-c", OPTIMISED)
    assert "Read s (s.x)" in shown and "Filter" not in shown.partition("| rule |")[0]
    assert "\n| `drop_true_filter` | σtrue(S) = S | NULL is not true |\n" in shown


# ---- a physical operator ---------------------------------------------------------------------------------------------

OPERATOR = read_example("Add a physical operator")


@pytest.fixture(scope="module")
def operator_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("operator")
    follow(OPERATOR, tree)
    return tree


def test_an_operator_touches_six_files(operator_tree: Path) -> None:
    assert sorted(changed(operator_tree)) == OPERATOR.files
    assert len(OPERATOR.files) == 6


def test_the_command_for_an_operator_passes(operator_tree: Path) -> None:
    passed = run_tests(operator_tree, OPERATOR.command)
    for test in (
        "test_query_has_the_expected_plans[change_streams: each auction from its first bid on]",
        "test_cases_have_every_physical_node",
        "test_engine_and_reference_agree[change_streams: each auction from its first bid on]",
        "test_engine_and_reference_agree[change_streams: what comes where nothing goes]",
    ):
        assert f"::{test}\n" in passed, test


ESTIMATED = """
import strandline as sl

with sl.connect(engine="local") as database:
    database.sql("CREATE STREAM s (x INT, ts TIMESTAMP) SOURCE events() ORDERED BY ts")
    print(database.sql("EXPLAIN SELECT DISTINCT x FROM s WINDOW(RANGE UNBOUNDED)"))
"""


def test_explain_has_the_estimates_of_the_operator(operator_tree: Path) -> None:
    shown = run(operator_tree, "-c", ESTIMATED)
    assert re.search(r"[\d.]+ +grows +hash +MON +UnboundedDistinct\n", shown), shown
    assert "1,000 distinct values of x" in shown, shown


WIDER = """
from random import Random

from random_streams import cut, stream
from support import assert_exact, bind, raw, run_plan

for seed in range(12):
    dice = Random(seed)
    streams = [stream(dice, f"s{number}", "is", 8) for number in range(2)]
    if any(each.intervals for each in streams):
        continue
    for text in (
        "SELECT DISTINCT i, s FROM s0 [RANGE UNBOUNDED]",
        "SELECT DISTINCT i FROM s0 [RANGE UNBOUNDED SLIDE 3 MICROSECONDS]",
        "SELECT DISTINCT a.i FROM s0 [RANGE UNBOUNDED] a JOIN s1 [RANGE UNBOUNDED] b ON a.s = b.s",
    ):
        plan = bind(text, streams)
        assert_exact(plan, raw(streams), run_plan(plan, streams, cut(dice, streams)))
"""


def test_the_operator_agrees_with_the_reference_on_random_streams(operator_tree: Path) -> None:
    run(operator_tree, "-c", WIDER)
