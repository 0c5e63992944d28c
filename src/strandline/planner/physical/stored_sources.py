"""Sources of stored plans: without what belongs to the running process, and without literal secrets.

A stored plan lies in a checkpoint for years, and is copied with it. So a password or token that was written into a
statement is not stored; it comes from the declaration of the stream in the process that reads the plan. References,
`secret('env:NAME')`, are stored as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from strandline.core.errors import CheckpointError
from strandline.core.security.allow import Allow
from strandline.core.security.redaction import is_sensitive, redact
from strandline.core.security.secret import Secret
from strandline.logical.catalog import Argument, BaseStream, ConnectorCall

CONCEALED: Final = Secret("text", "")  # in the place of a literal that is or contains a secret


def conceal_literals(call: ConnectorCall) -> ConnectorCall:
    """A call with `CONCEALED` for each argument that is or contains a literal secret: the ones that SHOW hides."""
    options = {name: _conceal(value, is_sensitive(name)) for name, value in call.options.items()}
    return replace(call, arguments=tuple(_conceal(value) for value in call.arguments), options=options)


def restore_source(stream: BaseStream, declared: Mapping[str, ConnectorCall], allow: Allow | None) -> BaseStream:
    """A stream that was read from a stored plan, with the confinement of this process; if it had literal secrets, with
    the call by which it is declared here, which must be the same in all that is stored."""
    call = stream.source
    if CONCEALED in (*call.arguments, *call.options.values()):
        actual = declared.get(stream.declared_name)
        if actual is None or conceal_literals(actual) != call:
            raise CheckpointError(
                f'the source of stream "{stream.name}" has a literal secret, which a checkpoint does not store',
                code="secret-not-stored",
                hint="Declare the stream as before, or create it with secret('env:NAME') in the first place.",
            )
        call = actual
    return replace(stream, source=replace(call, allow=allow))


def _conceal(value: Argument, sensitive: bool = False) -> Argument:
    return CONCEALED if _has_literal_secret(value, sensitive) else value


def _has_literal_secret(value: Argument, sensitive: bool) -> bool:
    match value:
        case Secret():
            return value.origin == "text"
        case str():
            return (sensitive and value != "") or redact(value) != value
        case list():
            return any(_has_literal_secret(item, sensitive) for item in value)
        case None | bool():
            return False
        case int() | float():
            return sensitive
