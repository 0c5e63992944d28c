"""Physical plans as JSON: how a checkpoint stores the plan that runs, to be read after a restart and by workers.

A stored plan is a table of rows. A row is the tag of an object and its fields in order; an object in a field is the
number of its row, which comes before. What occurs several times in a plan is written once, and is one object again when
it is read; the last row is the pipeline.

    {"format": 1,
     "rows": [["output", "s.k", "k", "INT"], ["Input", "source:s", [0], "intervals"], …, ["Pipeline", …]],
     "digest": "…"}

Law    decode(encode(p)) = p, and both have one fingerprint
Size   linear in the number of distinct objects, in whatever depth

Reading is strict, and executes nothing: tags are those of a closed table, fields have their declared types, and what
writing would not have written is damaged. A change of the form (a field that is added, removed or moved, a tag that
goes) needs a new `FORMAT`; a field marked UNLESS_DEFAULT may be added at the end, since it is left out while it has its
default. Not stored is what belongs to a process and not to a plan:

    BaseStream.feed       live objects: the stream is read without, as workers get it; the process that feeds it sets it
    ConnectorCall.allow   the confinement: it is that of the reading process
    literal secrets       they come from the declarations of the reading process (`stored_sources`)
    functions             stored by name and types: they come from those that are registered
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final, get_type_hints

from strandline.core import durable
from strandline.core.errors import damaged
from strandline.core.security.allow import Allow
from strandline.logical.catalog import BaseStream, ConnectorCall
from strandline.logical.udf import Definition
from strandline.planner.physical.plan import UNLESS_DEFAULT, Pipeline
from strandline.planner.physical.plan_json_fields import STANDINS, form_of
from strandline.planner.physical.plan_json_values import Form, InvalidForm, Reading
from strandline.planner.physical.stored_sources import conceal_literals, restore_source
from strandline.planner.physical.tags import TAGS, list_parts

FORMAT: Final = 1

_NOT_STORED: Final = {(BaseStream, "feed"), (ConnectorCall, "allow")}


@dataclass(frozen=True, slots=True)
class _RowForm:
    """The form of the objects of a class: its tag, its fields in order, and how many of them are always there."""

    kind: type
    tag: str
    names: tuple[str, ...]
    forms: tuple[Form, ...]
    defaults: tuple[Any, ...]  # of the fields at the end that are left out with it

    @staticmethod
    def of(kind: type, tag: str) -> _RowForm:
        declared = get_type_hints(kind, localns=STANDINS)
        stored = [field for field in fields(kind) if (kind, field.name) not in _NOT_STORED]
        later = [field for field in stored if field.metadata == UNLESS_DEFAULT]
        assert stored[len(stored) - len(later) :] == later, f"a later field of {tag} is not at the end"
        names = tuple(field.name for field in stored)
        return _RowForm(kind, tag, names, tuple(form_of(declared[name]) for name in names), _defaults(later))

    def write(self, value: Any, numbers: Mapping[int, int]) -> list[Any]:
        values = [getattr(value, name) for name in self.names]
        for default in reversed(self.defaults):
            if values[-1] != default:
                break
            values.pop()
        return [self.tag, *(form.write(each, numbers) for each, form in zip(values, self.forms, strict=False))]

    def read(self, row: list[Any], reading: Reading) -> Any:
        missing = len(self.forms) - (len(row) - 1)
        if not 0 <= missing <= len(self.defaults):
            raise InvalidForm
        given = [form.read(value, reading) for form, value in zip(self.forms, row[1:], strict=False)]
        if missing < len(self.defaults) and given[-1] == self.defaults[-1 - missing]:
            raise InvalidForm  # it would have been left out
        return self.kind(**dict(zip(self.names, given, strict=False)))


def _defaults(later: Iterable[Field[Any]]) -> tuple[Any, ...]:
    defaults = tuple(field.default for field in later)
    assert MISSING not in defaults, "a later field has a default"
    return defaults


_BY_KIND: Final = {kind: _RowForm.of(kind, tag) for kind, tag in TAGS.items()}
_BY_TAG: Final = {form.tag: form for form in _BY_KIND.values()}


def encode_pipeline(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline as a JSON value."""
    shown = replace(pipeline, streams=tuple(_without_process(stream) for stream in pipeline.streams))
    numbers: dict[int, int] = {}  # by identity
    by_text: dict[str, int] = {}  # equal objects have one row; 1 and TRUE are equal in Python, but not as text
    rows: list[list[Any]] = []
    for part in list_parts(shown):
        row = _BY_KIND[type(part)].write(part, numbers)
        numbers[id(part)] = number = by_text.setdefault(repr(row), len(rows))
        if number == len(rows):
            rows.append(row)
    return {"format": FORMAT, "rows": rows, "digest": _digest(rows)}


def decode_pipeline(
    value: Any,
    functions: Mapping[str, Definition],
    *,
    path: Path,
    allow: Allow | None,
    declared: Mapping[str, ConnectorCall] | None = None,
) -> Pipeline:
    """The pipeline of a JSON value from the file `path`. `functions` are those that are registered here, `allow` is the
    confinement here, and `declared` has the sources of streams by name, for those with literal secrets."""
    match value:
        case {"format": int(number)} if type(number) is int and number != FORMAT:
            raise durable.other_format(path, str(number), FORMAT)
        case {"format": int(number), "rows": list(rows), "digest": str(digest)} if (
            type(number) is int and len(value) == 3
        ):
            pass
        case _:
            raise damaged(path)
    try:
        if _digest(rows) != digest:
            raise InvalidForm
        pipeline = _read_rows(rows, functions)
    except (InvalidForm, RecursionError):  # lists in lists: no plan is that deep in one row
        raise damaged(path) from None
    streams = tuple(restore_source(stream, declared or {}, allow) for stream in pipeline.streams)
    return replace(pipeline, streams=streams)


def _read_rows(rows: list[Any], functions: Mapping[str, Definition]) -> Pipeline:
    reading = Reading(functions, [], bytearray(len(rows)))
    for row in rows:
        if type(row) is not list or not row or type(row[0]) is not str or row[0] not in _BY_TAG:
            raise InvalidForm
        reading.objects.append(_BY_TAG[row[0]].read(row, reading))
    if not rows or not all(reading.used[:-1]):
        raise InvalidForm
    pipeline = reading.objects[-1]
    if not isinstance(pipeline, Pipeline):
        raise InvalidForm
    return pipeline


def _without_process(stream: BaseStream) -> BaseStream:
    return replace(stream, feed=None, source=conceal_literals(stream.source))


def _digest(rows: list[Any]) -> str:
    return durable.digest(json.dumps([FORMAT, rows], separators=(",", ":")).encode())
