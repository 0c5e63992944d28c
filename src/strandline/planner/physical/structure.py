"""The structure of physical operators: what they compute, whatever their columns are called.

The id of an operator is a digest of its tag, its parameters with columns by position, and the ids of its inputs. Equal
parts of plans have equal ids, whatever the aliases of their queries; `share_operators` makes one node of them. The
names of columns stay those of the first plan that has the part.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import count
from types import MappingProxyType
from typing import Any, Final, NamedTuple, cast

from strandline.core.temporal import BEFORE_ALL
from strandline.core.types import Column, Schema
from strandline.logical.expressions import ColumnRef, Expression, columns_of
from strandline.logical.schema import rename
from strandline.logical.udf import user_functions
from strandline.planner.physical import plan as physical
from strandline.planner.physical.fingerprint import digest_content, encode_leaf, identifying_fields
from strandline.planner.physical.plan import (
    Fragment,
    Node,
    Pipeline,
    QueryPlan,
    numbered,
    operators_of,
    schema,
    sources,
    with_sources,
)
from strandline.planner.physical.tags import TAGS

# The fields that are strings and name columns of the input. Every other string of a node is no column.
COLUMN_FIELDS: Final[Mapping[type, frozenset[str]]] = {
    physical.Unnest: frozenset({"array"}),
    physical.CountWindow: frozenset({"partition"}),
    physical.SessionWindow: frozenset({"partition"}),
    physical.TopK: frozenset({"partition"}),
    physical.Rank: frozenset({"partition"}),
    physical.OverRange: frozenset({"partition"}),
    physical.OverRows: frozenset({"partition", "ties"}),
    physical.TopKPrefilter: frozenset({"partition"}),
    physical.IncrementalAggregate: frozenset({"keys"}),
    physical.FoldChanges: frozenset({"op_column", "key"}),
    physical.FirstOccurrence: frozenset({"keys", "values"}),
    physical.Exchange: frozenset({"keys"}),
}
_INPUT_FIELDS: Final = frozenset({"source", "sources", "left", "right"})


def share_operators(parts: Sequence[Pipeline], scopes: Sequence[str]) -> tuple[list[Fragment], list[QueryPlan]]:
    """The fragments and queries of pipelines that run together, with equal parts of them once.

    `scopes` has for each pipeline what must be equal beside the structure.
    """
    shared = SharedFragments()
    queries = [query for part, scope in zip(parts, scopes, strict=True) for query in shared.add(part, scope)]
    in_order = sorted(shared.fragments, key=lambda fragment: fragment.stage)
    return [replace(f, id=f"f{number}") for number, f in enumerate(in_order, 1)], queries


def number_operators(part: Pipeline, given_scope: str, running: Pipeline | None = None) -> Pipeline:
    """The pipeline of one query with the ids that its operators have beside others, which may run already: a query that
    comes later finds them."""
    bodies: dict[str, list[Any]] = {}
    if running is not None:
        _number_bodies(running, bodies)
    scope = given_scope + _number_bodies(part, bodies)
    taken: set[str] = set()
    fragments: list[Fragment] = []
    for fragment in part.fragments:
        ids = operator_ids(fragment.root, f"{scope} {fragment.everywhere}", fragment.streams)
        if taken.isdisjoint(ids):  # else it sends what another one sends, and each stays by itself
            fragment = replace(fragment, operators=ids)
            taken.update(ids)
        fragments.append(fragment)
    return replace(part, fragments=tuple(fragments))


class FoundFragment(NamedTuple):
    """A fragment, which of its operators run already, and whether what it sends is sent."""

    fragment: Fragment
    operators: tuple[bool, ...]
    is_sent: bool


class SharedFragments:
    """Fragments of pipelines that run together. A pipeline that is added takes what is there, and adds what is not."""

    def __init__(self) -> None:
        self._runs = False  # whether it began with those of a pipeline that runs
        self._nodes = SharedNodes()
        self._fragments: dict[tuple[Any, ...], Fragment] = {}  # by what must be equal for one to do
        self._further: list[Fragment] = []  # that run, and equal another one
        self._bodies: dict[str, list[Any]] = {}

    @staticmethod
    def of(running: Pipeline) -> SharedFragments:
        """The fragments of a pipeline that runs, found by the ids that its operators have."""
        shared = SharedFragments()
        shared._runs = True
        _number_bodies(running, shared._bodies)
        for fragment in running.fragments:
            for (node, _), operator_id in zip(operators_of(fragment.root), fragment.operators, strict=True):
                shared._nodes.keep(operator_id, node)
            keys = fragment.route.keys if isinstance(fragment.route, physical.ExchangeTo) else ()
            if shared._fragments.setdefault(_place(fragment, keys), fragment) is not fragment:
                shared._further.append(fragment)
        return shared

    @property
    def fragments(self) -> list[Fragment]:
        return [*self._fragments.values(), *self._further]

    def add(
        self, part: Pipeline, given_scope: str, known: Mapping[Node, str] = MappingProxyType({})
    ) -> list[QueryPlan]:
        """Add the fragments of a pipeline; returns its queries, with the columns of the operators that they share.
        `known` are operators that run, with their ids: they are shared whatever their scope."""
        query_scope = given_scope + _number_bodies(part, self._bodies)
        ports: dict[str, physical.Input] = {}
        roots: dict[str, Node] = {}
        for fragment in part.fragments:  # in the order of their stages
            scope = f"{query_scope} {fragment.everywhere}"  # a count without keys runs in one shard, with all below it
            structures = Structures(scope, MappingProxyType(dict(ports)), known)
            if isinstance(fragment.root, physical.Input) and (self._runs or fragment.since > BEFORE_ALL):
                self._keep_readers(fragment, structures)
            root = self._nodes.add(fragment.root, structures, fragment.streams)
            route = fragment.route
            shared = replace(fragment, root=root, operators=operator_ids(root, scope, fragment.streams, known))
            if isinstance(route, physical.ExchangeTo):
                names = dict(zip(_ids(fragment.root), _ids(root), strict=True))
                keys = tuple(names[key] for key in route.keys)
                # Equal fragments send once. A reader has their columns under the names that they have.
                place = _place(shared, keys)
                sender = self._fragments.get(place)
                port = route.port if sender is None else cast(physical.ExchangeTo, sender.route).port
                ports[route.port] = physical.Input(port, schema(root if sender is None else sender.root))
                shared = replace(shared, route=physical.ExchangeTo(port, route.stage, route.mode, keys))
            else:
                place, sender = _place(shared, ()), None
                roots[route.query] = root
            if sender is not None:
                shared = replace(sender, queries=tuple(dict.fromkeys((*sender.queries, *fragment.queries))))
            self._fragments[place] = shared
        return [_name_columns(query, roots[query.name]) for query in part.queries]

    def find(self, part: Pipeline, given_scope: str) -> list[FoundFragment]:
        """What a pipeline would take of what is there, by fragment; nothing is added."""
        bodies = {function: list(known) for function, known in self._bodies.items()}
        query_scope = given_scope + _number_bodies(part, bodies)
        known = {operator for fragment in self.fragments for operator in fragment.operators}
        ports: dict[str, physical.Input] = {}
        found: list[FoundFragment] = []
        for fragment in part.fragments:  # in the order of their stages
            structures = Structures(f"{query_scope} {fragment.everywhere}", MappingProxyType(dict(ports)))
            ids = _ids_within(fragment.root, structures, fragment.streams)
            sender = None
            if isinstance(fragment.route, physical.ExchangeTo):
                sender = self._fragments.get(_place(replace(fragment, operators=ids), fragment.route.keys))
                if sender is not None:
                    port = cast(physical.ExchangeTo, sender.route).port
                    ports[fragment.route.port] = physical.Input(port, schema(sender.root))
            found.append(FoundFragment(fragment, tuple(operator in known for operator in ids), sender is not None))
        return found

    def _keep_readers(self, fragment: Fragment, structures: Structures) -> None:
        """Let a fragment that only reads a stream find those that do the same: it has no operator with an id."""
        for other in self.fragments:
            is_equal = (other.everywhere, other.since) == (fragment.everywhere, fragment.since)
            if is_equal and isinstance(other.root, physical.Input) and other.streams == fragment.streams:
                self._nodes.keep(structures.id_of(other.root, other.streams), other.root)


def _place(fragment: Fragment, keys: tuple[str, ...]) -> tuple[Any, ...]:
    """What fragments that send once have in common; the id of the root stands for all that is below it."""
    route, root = fragment.route, fragment.root
    names = _ids(root) if keys else []
    positions = tuple(names.index(key) for key in keys)
    how = (route.query,) if isinstance(route, physical.ResultOf) else (route.stage, route.mode, positions)
    known = (root.name, *(column.name for column in root.columns)) if isinstance(root, physical.Input) else ()
    return fragment.everywhere, fragment.since, fragment.streams, known or fragment.operators[-1], type(route), *how


def _name_columns(query: QueryPlan, root: Node) -> QueryPlan:
    """A query over the columns of the shared operators."""
    columns = zip(query.columns, schema(root), strict=True)
    return replace(query, columns=tuple(Column(shared.id, own.name, own.type) for own, shared in columns))


def _number_bodies(pipeline: Pipeline, bodies: dict[str, list[Any]]) -> str:
    """Which of the functions of the same name and types a pipeline calls, where there are several; `bodies` are those
    that were met, by function."""
    numbers: list[str] = []
    for function in user_functions(pipeline).values():
        known = bodies.setdefault(str(function), [])
        if function not in known:
            known.append(function)
        if known.index(function):
            numbers.append(f"{function}#{known.index(function)}")
    return "".join(sorted(numbers))


def _ids(node: Node) -> list[str]:
    return [column.id for column in schema(node)]


def operator_ids(
    root: Node,
    scope: str = "",
    streams: frozenset[str] = frozenset(),
    known: Mapping[Node, str] = MappingProxyType({}),
) -> tuple[str, ...]:
    """The ids of the operators of a fragment, in the order of `numbered`. Equal ones with other names have numbers.
    `known` are those that have an id."""
    return _ids_within(root, Structures(scope, known=known), streams)


def _ids_within(root: Node, structures: Structures, streams: frozenset[str]) -> tuple[str, ...]:
    below, ids = goes_by([root], [streams]), list[str]()
    for node in numbered(root):
        ids.append(free_id(structures.id_of(node, below[node]), ids))
    return tuple(ids)


def goes_by(roots: Sequence[Node], streams: Sequence[frozenset[str]]) -> dict[Node, frozenset[str]]:
    """The streams by whose watermark each operator goes, of fragments with those of their results."""
    found: dict[Node, frozenset[str]] = {}
    pending = list(zip(roots, streams, strict=True))
    while pending:
        node, own = pending.pop()
        if node not in found:
            found[node] = own
            pending += [(source, streams_below(node, own)) for source in sources(node)]
    return found


def streams_below(node: Node, streams: frozenset[str]) -> frozenset[str]:
    """The streams by which the inputs of an operator go, if itself goes by some: others below a buffer for what runs
    ahead."""
    return frozenset(node.below) if isinstance(node, physical.Reorder) and node.below else streams


class Structures:
    """The ids of operators; each node is digested once, however often it occurs.

    `scope` is part of every id: what decides beside the plan whether two operators may be one. So are the streams whose
    watermark an operator goes by. `ports` are the inputs from exchanges as they are shared, by their names in the plan.
    `known` are operators that have an id, whatever the scope.
    """

    def __init__(
        self,
        scope: str = "",
        ports: Mapping[str, physical.Input] = MappingProxyType({}),
        known: Mapping[Node, str] = MappingProxyType({}),
    ) -> None:
        self._scope, self._ports, self._known = scope, ports, known
        # By identity; the node is kept, so that no other takes its place.
        self._ids: dict[tuple[int, frozenset[str]], tuple[Node, str]] = {}

    def id_of(self, node: Node, streams: frozenset[str] = frozenset()) -> str:
        if self._known and node in self._known:
            return self._known[node]
        known = self._ids.get((id(node), streams))
        if known is None:
            inputs = sources(node)
            below = [self.id_of(source, streams_below(node, streams)) for source in inputs]
            parameters = encode_parameters(self.port_of(node), inputs)
            scope = f"{sorted(streams)} {self._scope}" if streams else self._scope
            known = node, digest_content([scope, node.tag, *parameters, below])
            self._ids[id(node), streams] = known
        return known[1]

    def port_of(self, node: Node) -> Node:
        """An input from an exchange as it is shared; other nodes as they are."""
        return self._ports.get(node.name, node) if isinstance(node, physical.Input) else node


class SharedNodes:
    """Operators by structure. A plan that is added takes the nodes that are there, and adds those that are not.

    Law    `add(plan)` computes what the plan does, its columns by position
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}

    def keep(self, key: str, node: Node) -> None:
        """Keep a node by its id, unless there is one."""
        self._nodes.setdefault(key, node)

    def add(self, node: Node, structures: Structures, streams: frozenset[str] = frozenset()) -> Node:
        """The shared form of a plan that goes by the watermark of some streams."""
        key = structures.id_of(node, streams)
        if key not in self._nodes:
            shared, below = structures.port_of(node), streams_below(node, streams)
            self._nodes[key] = _rebase(shared, [self.add(source, structures, below) for source in sources(shared)])
        return self._nodes[key]


def _rebase(node: Node, inputs: list[Node]) -> Node:
    """The node over other inputs of the same structure: it names their columns, and its own apart from them."""
    if isinstance(node, physical.JoinNode | physical.SharedWindowJoin):
        inputs[1] = _rename_apart(inputs[1], {column.id for column in schema(inputs[0])})
    names = {
        old.id: new.id
        for before, after in zip(sources(node), inputs, strict=True)
        for old, new in zip(schema(before), schema(after), strict=True)
    }
    passed_on = {column.id for source in inputs for column in schema(source)}
    own = _own_columns(node)
    # A projection, a route, a union and a source list all their columns; others add theirs to those of the input.
    lists_all = isinstance(node, physical.Project | physical.Route | physical.UnionAll | physical.Input)
    taken = set() if lists_all else set(passed_on)
    renamed: dict[str, str] = {}
    for column in own:
        renamed[column.id] = free_id(column.id, taken)
        taken.add(renamed[column.id])
    changes = {
        field.name: _rename(getattr(node, field.name), names, renamed, field.name in COLUMN_FIELDS.get(type(node), ()))
        for field in fields(node)
        if field.name not in _INPUT_FIELDS
    }
    return with_sources(cast(Node, replace(cast(Any, node), **changes)), tuple(inputs))


def _rename_apart(node: Node, taken: set[str]) -> Node:
    """The right side of a join of a part with itself: under other names."""
    columns = schema(node)
    if not any(column.id in taken for column in columns):
        return node
    named: list[Column] = []
    for column in columns:
        used = taken | {other.id for other in named}
        named.append(Column(free_id(column.id, used), column.name, column.type))
    return physical.Project(rename(columns, tuple(named)), node)


def free_id(name: str, taken: Collection[str]) -> str:
    """The name, with a number if it is taken."""
    base = name.split("~")[0]
    numbers = (base if number == 0 else f"{base}~{number}" for number in count())
    return next(candidate for candidate in numbers if candidate not in taken)


def _own_columns(node: Node) -> list[Column]:
    """The columns that a node defines, in order."""
    return [
        value
        for field in fields(node)
        if field.name not in _INPUT_FIELDS
        for value in _values_within(getattr(node, field.name))
        if isinstance(value, Column)
    ]


def _values_within(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple):
        for item in value:
            yield from _values_within(item)
    else:
        yield value


def _rename(value: Any, names: Mapping[str, str], own: Mapping[str, str], names_columns: bool) -> Any:
    """A parameter with other column ids: `names` for those of the input, `own` for those that the node defines."""
    match value:
        case Column(column_id, name, kind):
            return Column(own[column_id], name, kind)
        case ColumnRef(column_id, kind):
            return ColumnRef(names[column_id], kind)
        case str():
            return names[value] if names_columns else value
        case tuple():
            return tuple(_rename(item, names, own, names_columns) for item in value)
        case _ if type(value) in TAGS:
            changes = {
                field.name: _rename(getattr(value, field.name), names, own, names_columns=False)
                for field in fields(value)
                if field.init
            }
            return replace(value, **changes)
    return value


def encode_expression(expression: Expression) -> Any:
    """The canonical form of an expression, columns by their ids."""
    return _encode(expression, {name: name for name in columns_of(expression)}, False, False)


def encode_parameters(node: Node, inputs: Sequence[Node]) -> Iterator[Any]:
    """The parameters of a node, columns by position."""
    columns: Schema = tuple(column for source in inputs for column in schema(source))
    positions = {column.id: number for number, column in enumerate(columns)}
    by_name = isinstance(node, physical.Input)  # a source is read by the names of its columns
    for field in identifying_fields(node):
        if field.name in _INPUT_FIELDS:
            continue
        names_columns = field.name in COLUMN_FIELDS.get(type(node), ())
        yield [field.name, _encode(getattr(node, field.name), positions, by_name, names_columns)]


def _encode(value: Any, positions: Mapping[str, int | str], by_name: bool, names_columns: bool) -> Any:
    match value:
        case Column(_, name, kind):
            return ["defines", str(kind), *([name] if by_name else [])]
        case ColumnRef(column_id, kind):
            return ["column", positions[column_id], str(kind)]
        case str():
            return ["column", positions[value]] if names_columns else value
        case tuple():
            return [_encode(item, positions, by_name, names_columns) for item in value]
        case _ if (tag := TAGS.get(type(value))) is not None:
            return [
                tag,
                *(_encode(getattr(value, f.name), positions, by_name, False) for f in identifying_fields(value)),
            ]
    return encode_leaf(value)
