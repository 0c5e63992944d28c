"""What a SELECT that groups makes of its rows: groups, the subqueries in HAVING and in the list, and HAVING itself.

A room of the binder. In a subquery that reads the queries around it there are groups for each combination of what it
reads: its keys are its own and the columns that its rows bring along (see `reach`).
"""

from __future__ import annotations

from dataclasses import dataclass

from strandline.core.errors import Span
from strandline.logical.expressions import Expression, columns_of, conjunction
from strandline.logical.plan import Filter, Plan
from strandline.sql.binder.decorrelate import Rows
from strandline.sql.binder.grouping import Groups
from strandline.sql.binder.subqueries import Subqueries


@dataclass(frozen=True)
class Grouped:
    """The groups of a SELECT, its outputs and HAVING over them, and the subqueries of the two."""

    groups: Groups
    values: list[Expression]
    having: tuple[Expression, ...]
    in_having: Subqueries
    in_list: Subqueries

    def complete(self, rows: Rows, span: Span) -> None:
        """Make groups of the rows: if they depend on the queries around, for each combination that these have."""
        if rows.ties or rows.reach.copies or rows.reach.read(self.groups.inputs):
            rows.pair_with_domain(self.groups.inputs, span)
            self.groups.per_combination(rows.reach)
        rows.later_ties = [part for part in self.having if columns_of(part) & rows.reach.around]
        kept = conjunction(tuple(part for part in self.having if part not in rows.later_ties))

        def above(source: Plan, domain: Plan | None) -> Plan:
            plan = self.in_having.joined(self.groups.plan(source, domain))
            return self.in_list.joined(plan if kept is None else Filter(kept, plan))

        rows.above = above
