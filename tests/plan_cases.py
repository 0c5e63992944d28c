"""Golden plans: reads the case files, makes the plans that they show, and rewrites what they expect.

`tests/plans/*.case` show whole queries: the plan as written, the optimised plan and the physical plan.
`tests/planner/rules/<rule>.case` show single rules: the plan before and each plan that the rule makes of it.

A file begins with the statements that declare its streams. A case is a title line `-- …`, the SQL, and sections:

    -- logical, -- optimised, -- physical   of a query; several queries of one case run in one pipeline
    -- prepared by: <rules>                 the rules that are applied before `-- before`, separated by commas
    -- before, -- after                     of a rule; it may have several results
    -- does not fire: <reason>              in place of `-- after`

`python tests/plan_cases.py --update` rewrites the plans, never the SQL. Review the difference.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from rule_testing import made_by
from strandline.logical.catalog import BaseStream, Catalog, Table
from strandline.logical.explain import show_plan
from strandline.logical.plan import Plan
from strandline.planner.cardinality import NOTHING_KNOWN, StatisticsByStream
from strandline.planner.join_order import order_joins
from strandline.planner.physical.explain import show_pipeline
from strandline.planner.planner import PlannedPipeline, PlannedQuery, PlanningInputs, plan
from strandline.planner.prices import load_prices
from strandline.planner.rules.prune_columns import prune_columns
from strandline.sql import ast
from strandline.sql.binder.binder import bind_derived_stream, bind_query, bind_view
from strandline.sql.binder.create_stream import bind_create_stream
from strandline.sql.parser.statements import parse
from table_testing import some_tables

TESTS: Final = Path(__file__).parent
PLANS: Final = TESTS / "plans"
RULES: Final = TESTS / "planner" / "rules"
RULE_STREAMS: Final = RULES / "streams.sql"  # what all cases of rules read, unless their file declares more
UPDATE: Final = "python tests/plan_cases.py --update"

BUCKETS: Final = 4
CAPACITY: Final = float(BUCKETS)  # seconds of work per second, for queries that allow shedding
UNCHANGED: Final = "unchanged"
PREPARED: Final = "prepared by"
REFUSED: Final = "does not fire"
PLAN_SECTIONS: Final = frozenset({"logical", "optimised", "physical", "before", "after"})


@dataclass(frozen=True)
class Section:
    """A heading and the plan below it; a heading may have a value after a colon, then there is no plan."""

    name: str
    body: str = ""
    value: str = ""


@dataclass(frozen=True)
class Case:
    """A titled query of a file and the sections that follow it."""

    file: Path
    declarations: str
    title: str
    query: str
    sections: tuple[Section, ...]

    @property
    def name(self) -> str:
        return f"{self.file.stem}: {self.title}"

    @property
    def prepared_by(self) -> tuple[str, ...]:
        """The rules that are applied before the one that is shown."""
        return tuple(rule for each in self.sections if each.name == PREPARED for rule in each.value.split(", "))

    @property
    def refusal(self) -> str | None:
        """The reason why a rule does not fire, if the case says that it does not."""
        return next((each.value for each in self.sections if each.name == REFUSED), None)


# ---- files -----------------------------------------------------------------------------------------------------------


def read_file(path: Path) -> tuple[str, list[Case]]:
    """The declarations of a file and its cases."""
    before: list[str] = []
    blocks: list[tuple[Section, list[str]]] = []
    for line in path.read_text().splitlines():
        heading = _read_heading(line)
        if heading is not None:
            blocks.append((heading, []))
        else:
            (blocks[-1][1] if blocks else before).append(line)
    declarations = "\n".join(before).strip("\n")
    sections = [Section(heading.name, "\n".join(lines).strip("\n"), heading.value) for heading, lines in blocks]
    return declarations, list(_group_cases(path, declarations, sections))


def _read_heading(line: str) -> Section | None:
    """The heading that a line is: of a section, or else the title of a case."""
    if not line.startswith("-- "):
        return None
    text = line.removeprefix("-- ")
    name, colon, value = text.partition(": ")
    if text in PLAN_SECTIONS:
        return Section(text)
    return Section(name, value=value) if colon and name in (PREPARED, REFUSED) else Section("title", value=text)


def _group_cases(path: Path, declarations: str, sections: Sequence[Section]) -> Iterator[Case]:
    """Titles begin cases; what stands before the next title belongs to the case."""
    starts = [place for place, section in enumerate(sections) if section.name == "title"]
    for start, end in zip(starts, (*starts[1:], len(sections)), strict=True):
        title, *rest = sections[start:end]
        yield Case(path, declarations, title.value, title.body, tuple(rest))


def write_section(section: Section) -> str:
    heading = f"-- {section.name}: {section.value}" if section.value else f"-- {section.name}"
    return f"{heading}\n{section.body}" if section.body else heading


def write_file(declarations: str, cases: Sequence[tuple[Case, Sequence[Section]]]) -> str:
    """The text of a file, with other sections for its cases."""
    blocks = [declarations] if declarations else []
    for case, sections in cases:
        blocks.append("\n".join((f"-- {case.title}", case.query, *map(write_section, sections))))
    return "\n\n".join(blocks) + "\n"


@cache
def read_plan_cases() -> tuple[Case, ...]:
    return tuple(case for path in sorted(PLANS.glob("*.case")) for case in read_file(path)[1])


@cache
def read_rule_cases() -> tuple[Case, ...]:
    """The cases of all rules; the name of a file is that of its rule."""
    return tuple(case for path in sorted(RULES.glob("*.case")) for case in read_file(path)[1])


# ---- plans -----------------------------------------------------------------------------------------------------------


def declare_streams(script: str) -> Catalog:
    """The streams and views of a script, and the tables that all cases have."""
    catalog = Catalog()
    for each in some_tables(0):
        assert each.table is not None
        catalog.add(each.table)
    for statement in parse(script):
        match statement:
            case ast.CreateStream():
                catalog.add(bind_create_stream(statement))
            case ast.CreateStreamAs():
                catalog.add(bind_derived_stream(statement, catalog))
            case ast.CreateView():
                catalog.add(bind_view(statement, catalog))
            case _:
                raise AssertionError(f"a case file declares streams and views, found {type(statement).__name__}")
    return catalog


def plan_queries(case: Case) -> PlannedPipeline:
    """The plans of a case, made in the way in which the engine makes them."""
    catalog = declare_streams(case.declarations)
    streams = [stream for stream in catalog if isinstance(stream, BaseStream)]
    streams += [table.input for table in catalog if isinstance(table, Table)]
    statements = list(parse(case.query))
    names = [f"query{number}" if len(statements) > 1 else "query" for number in range(1, len(statements) + 1)]
    bound: dict[str, Plan] = {}
    shedding: set[str] = set()
    for name, statement in zip(names, statements, strict=True):
        query = statement.query if isinstance(statement, ast.QueryWithShedding) else statement
        assert isinstance(query, ast.Query), f"a case has queries, found {type(statement).__name__}"
        shedding |= {name} if isinstance(statement, ast.QueryWithShedding) else set()
        bound[name] = bind_query(query, catalog)
    limits = dict.fromkeys(shedding, CAPACITY)
    inputs = PlanningInputs(
        streams, catalog.statistics(), load_prices(), BUCKETS, limits, frozenset(shedding), frozenset(bound)
    )
    return plan(bound, inputs)


def make_plan_sections(case: Case) -> tuple[Section, ...]:
    """What the sections of a query should be."""
    planned = plan_queries(case)
    return (
        *(_show_section("logical", show_plan(query.logical)) for query in planned.queries),
        *(_show_section("optimised", _show_optimised(query)) for query in planned.queries),
        _show_section("physical", show_pipeline(planned.physical)),
    )


def _show_optimised(query: PlannedQuery) -> str:
    return show_plan(query.optimized) if query.optimized != query.logical else UNCHANGED


def _show_section(name: str, plan: str) -> Section:
    """A section without the space that ends the line of a map without columns: editors remove it."""
    return Section(name, "\n".join(line.rstrip() for line in plan.splitlines()))


def apply_rule(rule: str, plan: Plan, statistics: StatisticsByStream = NOTHING_KNOWN) -> list[Plan]:
    """All plans that a rule makes of one at any place; two of them look at the whole plan."""
    if rule not in ("prune_columns", "order_joins"):
        return made_by([rule], plan)
    other = prune_columns(plan) if rule == "prune_columns" else order_joins(plan, statistics)
    return [other] if other != plan else []


def make_rule_sections(case: Case) -> tuple[Section, ...]:
    """What the sections of a rule should be; of several prepared plans it shows the first on which the rule fires."""
    catalog = declare_streams(f"{RULE_STREAMS.read_text()}\n{case.declarations}")
    (query,) = parse(case.query)
    assert isinstance(query, ast.Query), f"a case has one query, found {type(query).__name__}"
    prepared = made_by(case.prepared_by, bind_query(query, catalog))
    assert prepared, f"{case.name}: the rules that should prepare the plan do not apply"
    results = [(plan, apply_rule(case.file.stem, plan, catalog.statistics())) for plan in prepared]
    before, after = next((result for result in results if result[1]), results[0])
    return (
        *(section for section in case.sections if section.name == PREPARED),
        _show_section("before", show_plan(before)),
        *(_show_section("after", show_plan(plan)) for plan in after),
        *(section for section in case.sections if section.name == REFUSED),
    )


# ---- comparison and update -------------------------------------------------------------------------------------------


def explain_difference(case: Case, sections: Sequence[Section]) -> str | None:
    """A unified difference between what a case expects and what is made, and how to accept it; None if they agree."""
    if tuple(sections) == case.sections:
        return None
    expected, made = ("\n".join(map(write_section, each)).splitlines() for each in (case.sections, sections))
    lines = difflib.unified_diff(expected, made, "expected", "made", n=30, lineterm="")
    place = case.file.relative_to(TESTS.parent)
    return "\n".join((f'{place}, "{case.title}"', *lines, f"if this is intended: {UPDATE}"))


def update_file(path: Path) -> bool:
    """Rewrite the plans of a file; whether that changed it."""
    make_sections = make_rule_sections if path.parent == RULES else make_plan_sections
    declarations, cases = read_file(path)
    text = write_file(declarations, [(case, make_sections(case)) for case in cases])
    changed = text != path.read_text()
    path.write_text(text)
    return changed


def main() -> None:
    if sys.argv[1:] != ["--update"]:
        sys.exit(f"usage: {UPDATE}")
    # Plans go by the costs that come along, however this machine was calibrated; tests do the same.
    os.environ["STRANDLINE_COSTS"] = "built-in"
    for path in sorted((*PLANS.glob("*.case"), *RULES.glob("*.case"))):
        if update_file(path):
            print(f"updated {path.relative_to(TESTS.parent)}")


if __name__ == "__main__":
    main()
