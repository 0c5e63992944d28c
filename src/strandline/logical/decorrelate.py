"""Decorrelation: every Apply becomes joins, with the same snapshots.

The binder writes a subquery as `Apply(kind, column, value, left, right)`. The right is an ordinary plan, a query block
(see `query_block`), whose expressions may read columns of the left, its outer references. Ids are unique in a plan, so
an outer reference is a column that the left has.

Applys are replaced from the outside to the inside. The steps for one:

1. Correlated predicates above all groups become part of the join condition: L ⋉ σ_p(R) = L ⋉_p R.
2. The outer references that are left are those of Applys within the right, and below groups. The rows of the right
   bring them along, as columns called outer.x; then an Apply inside reads nothing but its own left. There are two ways.
   - A correlated predicate b.y = a.x of the join condition gives a.x: it is b.y, other rows of b do not count.
   - Else the right is computed for the distinct outer bindings D = δπ(L), also called the magic set; `pair` has the
     laws. An element of the left is joined with the rows of its own binding, where NULL equals NULL. D has each
     binding once, so an element meets as many rows as there are.
3. The rest is the join of the kind: semi, anti or mark; for single an outer join with a column `found`.

An aggregate without keys has a row also over nothing, which a group by outer references has not (the COUNT bug): an
element of the left whose group is not found has the value of an aggregate over nothing. If all correlated predicates
of such an aggregate are equalities, it is grouped by their inner sides, without D.

The column of a single Apply becomes an expression over the join, which replaces the column wherever it is read above.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from strandline.core.errors import BindError
from strandline.core.types import BOOLEAN, Column
from strandline.logical import query_block
from strandline.logical.expressions import (
    AggregateCall,
    Call,
    Case,
    ColumnRef,
    Expression,
    Literal,
    Value,
    conjunction,
    substitute,
)
from strandline.logical.plan import (
    Aggregate,
    Apply,
    Distinct,
    Filter,
    Join,
    Map,
    MarkJoin,
    OuterJoin,
    Outputs,
    Over,
    Plan,
    Rank,
    SemiJoin,
    Union,
)
from strandline.logical.schema import Ids, pass_on, schema
from strandline.logical.tree import map_expressions, sources, walk, with_sources

TRUE: Final = Literal(True, BOOLEAN)


def decorrelate(plan: Plan, ids: Ids) -> Plan:
    """The plan with joins instead of Applys; `ids` names the columns that these need."""
    if not any(isinstance(node, Apply) for node in walk(plan)):
        return plan
    return _Decorrelation(ids).plan(plan)


@dataclass(frozen=True, slots=True)
class _Bindings:
    """The distinct outer bindings of a subquery: the columns that hold them, by outer id, and the plan with a row of
    them each. `at_source` says that they are needed below WHERE, since a subquery in it reads them."""

    columns: dict[str, Column]
    plan: Plan
    at_source: bool

    def are_read(self, plan: Plan) -> bool:
        return query_block.reads(plan, {column.id: column for column in self.columns.values()})

    def conditions(self) -> list[Expression]:
        """That a row of the left and one of the right belong to the same binding."""
        pairs = ((ColumnRef(column_id, c.type), ColumnRef(c.id, c.type)) for column_id, c in self.columns.items())
        return [part for outer, inner in pairs for part in null_safe_equality(outer, inner)]


class _Decorrelation:
    """The decorrelation of one plan."""

    def __init__(self, ids: Ids) -> None:
        self.ids = ids
        self.values: dict[str, Expression] = {}  # what has become of the columns of single Applys

    def plan(self, plan: Plan) -> Plan:
        applies: list[Apply] = []
        while isinstance(plan, Apply):
            applies.append(plan)
            plan = plan.left
        joined = source = self.node(plan)
        for apply in reversed(applies):
            joined = self.join(apply, joined, source)
        return joined

    def node(self, plan: Plan) -> Plan:
        plan = with_sources(plan, tuple(self.plan(source) for source in sources(plan)))
        if isinstance(plan, Rank | Over):
            ids = dict.fromkeys((*plan.partition, *(key.column.id for key in plan.order)))
            if isinstance(plan, Over):
                ids |= dict.fromkeys((*plan.ties, *(column.id for _, call in plan.calls for column in call.columns)))
            keys = [(column_id, self.values.pop(column_id)) for column_id in ids if column_id in self.values]
            computed = tuple((Column(column_id, "key", value.type), value) for column_id, value in keys)
            return replace(plan, source=Map((*pass_on(schema(plan.source)), *computed), plan.source)) if keys else plan
        plan = map_expressions(plan, self.resolve) if self.values else plan
        for column, _ in plan.outputs if isinstance(plan, Map) else ():
            self.values.pop(column.id, None)  # passed on: a column again
        return plan

    def resolve(self, value: Expression) -> Expression:
        return substitute(value, self.values)

    def join(self, apply: Apply, left: Plan, source: Plan) -> Plan:
        """An Apply over `left` as a join; the outer bindings are those of `source`, the left without other Applys."""
        if apply.kind == "single" and isinstance(apply.right, Aggregate):
            return self.join_aggregate(apply, apply.right, left, source)
        outer = {column.id: column for column in schema(apply.left)}
        right, conditions = query_block.pull_up_predicates(apply.right, outer)
        nested = query_block.by_id(query_block.nested_references(right, outer))
        if query_block.is_grouped(right):
            if query_block.reads(right, outer):
                bindings = self.bind(apply, right, outer, source)
                right = self.pair(query_block.replace_references(right, bindings.columns), bindings)
                conditions = [*bindings.conditions(), *conditions]
        elif nested.keys() <= (equal := query_block.equal_columns(conditions, outer, right)).keys():
            right = self.with_equal_columns(right, nested, equal)
        else:
            bindings = self.bind(apply, apply.right, outer, source)
            right = self.pair(query_block.replace_references(apply.right, bindings.columns), bindings)
            conditions = bindings.conditions()
        right = self.plan(right)
        if apply.kind == "single":
            return self.join_single(apply, None, left, right, conditions)
        predicate = conjunction((*conditions, *(() if apply.value is None else (apply.value,))))
        predicate = None if predicate is None else self.resolve(predicate)
        if apply.kind == "mark":
            assert apply.column is not None, "a mark has a column"
            return MarkJoin(apply.column, predicate, left, right)
        return SemiJoin(apply.kind == "anti", predicate, left, right)

    # ---- values ------------------------------------------------------------------------------------------------------

    def join_aggregate(self, apply: Apply, aggregate: Aggregate, left: Plan, source: Plan) -> Plan:
        """The value of an aggregate without keys.

        Law   not correlated: l × Γ(R); by equalities l.x = r.y alone: l ⟕ Γ_y(R); else l ⟕ Γ_D(D ⋈ R)
        """
        assert apply.column is not None and apply.value is not None, "a value has a column"
        outer = {column.id: column for column in schema(apply.left)}
        if not query_block.reads(aggregate, outer):
            joined = Join(None, left, self.plan(aggregate))
            self.values[apply.column.id] = self.resolve(apply.value)
            return joined
        below = aggregate.source
        inputs: Outputs = below.outputs if isinstance(below, Map) else ()
        rows = below.source if isinstance(below, Map) else below
        nested = query_block.by_id(query_block.nested_references(rows, outer))
        pulled, predicates = query_block.pull_up_predicates(rows, outer)
        equal = query_block.equal_columns(predicates, outer, pulled)
        pairs = [pair for predicate in predicates if (pair := query_block.equality(predicate, outer)) is not None]
        is_by_equalities = len(pairs) == len(predicates) and nested.keys() <= equal.keys()
        right: Plan
        if is_by_equalities and not query_block.read_in((value for _, value in inputs), outer):
            rows = self.with_equal_columns(pulled, nested, equal)
            right, conditions = self.group_by_keys(aggregate, inputs, rows, pairs)
        else:
            bindings = self.bind(apply, aggregate, outer, source)
            bound = query_block.replace_references(aggregate, bindings.columns)
            assert isinstance(bound, Aggregate), "only expressions were changed"
            right, conditions = self.group_by_bindings(bound, bindings), bindings.conditions()
        over_nothing: dict[str, Expression] = {c.id: _over_nothing(c, call) for c, call in aggregate.aggregates}
        return self.join_single(apply, substitute(apply.value, over_nothing), left, self.plan(right), conditions)

    def group_by_keys(
        self, aggregate: Aggregate, inputs: Outputs, rows: Plan, pairs: list[tuple[Expression, Expression]]
    ) -> tuple[Plan, list[Expression]]:
        """The aggregate grouped by the inner sides of equalities, and these equalities over its keys."""
        columns = {value: column for column, value in inputs}
        named = {column.id: column for column in schema(query_block.from_clause(rows))}
        conditions: list[Expression] = []
        for outer, inner in pairs:
            if inner not in columns:
                column = named.get(inner.id) if isinstance(inner, ColumnRef) else None
                columns[inner] = column or Column(self.ids.fresh("key"), "key", inner.type)
            conditions.append(Call("=", (outer, ColumnRef(columns[inner].id, columns[inner].type)), BOOLEAN))
        keys = tuple(dict.fromkeys(columns[inner].id for _, inner in pairs))
        below = Map(tuple((column, value) for value, column in columns.items()), rows)
        return Aggregate(keys, aggregate.aggregates, below), conditions

    def join_single(
        self, apply: Apply, otherwise: Expression | None, left: Plan, right: Plan, conditions: list[Expression]
    ) -> Plan:
        """Join the one row of the right, and compute the value from it, or what the value is `otherwise`."""
        assert apply.column is not None and apply.value is not None, "a value has a column"
        mark = Column(self.ids.fresh("found"), "found", BOOLEAN)
        predicate = self.resolve(conjunction(tuple(conditions)) or TRUE)
        marked = Map((*pass_on(schema(right)), (mark, TRUE)), right)
        is_found = Call("not", (Call("is_null", (ColumnRef(mark.id, BOOLEAN),), BOOLEAN),), BOOLEAN)
        kind = apply.value.type
        case = Case(((is_found, apply.value),), Literal(None, kind) if otherwise is None else otherwise, kind)
        self.values[apply.column.id] = self.resolve(case)
        return OuterJoin(False, predicate, left, marked)

    # ---- outer references --------------------------------------------------------------------------------------------

    def bind(self, apply: Apply, right: Plan, outer: query_block.Outer, source: Plan) -> _Bindings:
        """The distinct outer bindings of all outer references of the right."""
        columns = self.name_references(query_block.by_id(query_block.references(right, outer, apply.span)))
        outputs = tuple((column, ColumnRef(column_id, column.type)) for column_id, column in columns.items())
        at_source = any(query_block.nested_references(right, outer))
        return _Bindings(columns, Distinct(Map(outputs, source)), at_source)

    def name_references(self, references: dict[str, query_block.Reference]) -> dict[str, Column]:
        """A column for each outer reference."""
        columns: dict[str, Column] = {}
        for column_id, (column, span) in references.items():
            if column.type.element is not None:
                message = "a correlated reference to an array is not supported"
                hint = "Select the needed elements in a subquery in FROM, and refer to those."
                raise BindError(message, code="not-supported", hint=hint, span=span)
            columns[column_id] = Column(
                self.ids.fresh(f"outer.{column_id.removeprefix('outer.')}"), column_id, column.type
            )
        return columns

    def with_equal_columns(
        self, right: Plan, nested: dict[str, query_block.Reference], equal: dict[str, ColumnRef]
    ) -> Plan:
        """The right with the outer references of its subqueries as columns of FROM that equal them."""
        if not nested:
            return right
        columns = self.name_references(nested)
        source = query_block.from_clause(right)
        added = tuple((columns[column_id], equal[column_id]) for column_id in nested)
        return query_block.with_from_clause(
            query_block.replace_references(right, columns), Map((*pass_on(schema(source)), *added), source)
        )

    def pair(self, plan: Plan, bindings: _Bindings) -> Plan:
        """D ⋈ R, the right for each outer binding. Its outer references are columns of D here.

        Laws   D ⋈ R = D × R                      where R reads nothing of D
               D ⋈ σ_p(R) = σ_p(D ⋈ R)            = D ⋈_p R, where R reads nothing of D
               D ⋈ Apply(R, S) = Apply(D ⋈ R, S)
               D ⋈ Γ_k(R) = Γ_{k,D}(D ⋈ R)        without keys also a group over nothing for each row of D
               D ⋈ (R ∪ S) = (D ⋈ R) ∪ (D ⋈ S)
        """
        if not bindings.at_source and not bindings.are_read(plan):
            return Join(None, bindings.plan, plan)
        match plan:
            case Filter(predicate, source) if not bindings.at_source and not bindings.are_read(source):
                return Join(predicate, bindings.plan, source)
            case Filter(predicate, source):
                return Filter(predicate, self.pair(source, bindings))
            case Apply():
                return replace(plan, left=self.pair(plan.left, bindings))
            case Aggregate((), _, _):
                return self.add_empty_groups(self.group_by_bindings(plan, bindings), bindings)
            case Aggregate():
                return self.group_by_bindings(plan, bindings)
            case Union(columns, inputs) if query_block.is_grouped(plan):
                added = tuple(bindings.columns.values())
                paired = tuple(self.pair_grouping_set(source, bindings) for source in inputs)
                return Union((*columns, *added), paired)
        return Join(None, bindings.plan, plan)

    def pair_grouping_set(self, plan: Plan, bindings: _Bindings) -> Plan:
        assert isinstance(plan, Map), "a grouping set is a Map over an Aggregate"
        columns = bindings.columns.values()
        added = tuple((replace(c, id=self.ids.fresh(c.id)), ColumnRef(c.id, c.type)) for c in columns)
        return Map((*plan.outputs, *added), self.pair(plan.source, bindings))

    def group_by_bindings(self, aggregate: Aggregate, bindings: _Bindings) -> Aggregate:
        columns = tuple(bindings.columns.values())
        read = {column.id for _, call in aggregate.aggregates for column in call.columns}.union(aggregate.keys)
        match aggregate.source:
            # Keys and arguments; a Map of FROM has nothing to do with the groups.
            case Map(outputs, rows) as inputs if bindings.are_read(inputs) or any(c.id in read for c, _ in outputs):
                source: Plan = Map((*outputs, *pass_on(columns)), self.pair(rows, bindings))
            case rows:
                source = self.pair(rows, bindings)
        keys = dict.fromkeys((*aggregate.keys, *(column.id for column in columns)))
        return Aggregate(tuple(keys), aggregate.aggregates, source)

    def add_empty_groups(self, grouped: Aggregate, bindings: _Bindings) -> Plan:
        """A group for each outer binding: over nothing, where there is none."""
        inner = {c.id: Column(self.ids.fresh(c.id), c.name, c.type) for c in schema(grouped)}
        refs = {column_id: ColumnRef(column.id, column.type) for column_id, column in inner.items()}
        renamed = Map(tuple((inner[c.id], ColumnRef(c.id, c.type)) for c in schema(grouped)), grouped)
        columns = tuple(bindings.columns.values())
        equal = conjunction(
            tuple(part for c in columns for part in null_safe_equality(ColumnRef(c.id, c.type), refs[c.id]))
        )
        assert equal is not None, "bindings have columns"
        values: list[tuple[Column, Expression]] = []
        for column, call in grouped.aggregates:
            nothing = _over_nothing(column, call)
            counted = Call("coalesce", (refs[column.id], nothing), column.type)
            values.append((column, refs[column.id] if nothing.value is None else counted))
        return Map((*pass_on(columns), *values), OuterJoin(False, equal, bindings.plan, renamed))


def _over_nothing(column: Column, call: AggregateCall) -> Literal:
    """The value of an aggregate over no rows."""
    return Literal(0 if call.function == "count" else None, column.type)


def null_safe_equality(one: Expression, two: Expression) -> tuple[Expression, Expression]:
    """That two values of a type are equal or both NULL, as two equalities, which a join can look up."""
    some = Literal(_SOME_VALUE[one.type.name], one.type)
    return (
        Call("=", tuple(Call("coalesce", (value, some), value.type) for value in (one, two)), BOOLEAN),
        Call("=", tuple(Call("is_null", (value,), BOOLEAN) for value in (one, two)), BOOLEAN),
    )


_SOME_VALUE: Final[dict[str, Value]] = {
    "BOOLEAN": False,
    "INT": 0,
    "BIGINT": 0,
    "DOUBLE": 0.0,
    "DECIMAL": Decimal(0),
    "VARCHAR": "",
    "DATE": date(1970, 1, 1),
    "TIMESTAMP": datetime(1970, 1, 1),
}
