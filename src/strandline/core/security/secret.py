"""Secrets: passwords and tokens that a statement names without containing them.

`secret('env:HOOK_TOKEN')` is the content of an environment variable, `secret('file:/run/secrets/hook')` that of a file.
A reference travels and is shown; its value is read where it is used, in the process that uses it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from strandline.core.arguments import checked
from strandline.core.errors import SetupError
from strandline.core.security.redaction import HIDDEN

MAX_BYTES: Final = 64 * 1024  # of a file with a secret


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """A text that is never shown: a reference to it or, as `text`, a literal of the statement itself."""

    origin: Literal["env", "file", "text"]
    name: str

    def __repr__(self) -> str:
        return HIDDEN if self.origin == "text" else f"secret('{self.reference}')"

    @property
    def reference(self) -> str:
        return HIDDEN if self.origin == "text" else f"{self.origin}:{self.name}"

    def reveal(self) -> str:
        """The text itself."""
        match self.origin:
            case "text":
                return self.name
            case "env":
                value = os.environ.get(self.name)
                if not value:
                    raise self._missing(f"the environment variable {self.name} is not set")
                return value
            case "file":
                return self._content()

    def _content(self) -> str:
        try:
            with Path(self.name).open("rb") as file:
                content = file.read(MAX_BYTES + 1)
            value = content.decode().rstrip("\r\n")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise self._missing(f"cannot read the file {self.name}: {reason}") from None
        if not value or len(content) > MAX_BYTES:
            raise self._missing(f"the file {self.name} is {'empty' if not value else 'too long for a secret'}")
        return value

    def _missing(self, reason: str) -> SetupError:
        return SetupError(
            f"cannot read {self!r}",
            code="secret-missing",
            detail=f"{reason[0].upper()}{reason[1:]}.",
            hint="Set it on every machine that uses it, then start again.",
        )


def parse_reference(reference: str) -> Secret | None:
    """`env:NAME` or `file:PATH`; None for anything else."""
    origin, separator, name = reference.partition(":")
    if not separator or not name or "\0" in name:
        return None
    match origin:
        case "env":
            return Secret("env", name) if "=" not in name else None
        case "file":
            return Secret("file", name)
    return None


@checked()
def secret(reference: str) -> Secret:
    """The secret at `env:NAME` or `file:PATH`, for sinks that are made in Python."""
    parsed = parse_reference(reference)
    if parsed is None:
        raise bad_reference()
    return parsed


def bad_reference() -> SetupError:
    return SetupError(
        "invalid secret reference: expected env:NAME or file:PATH",
        code="secret-reference",
        hint="Write secret('env:HOOK_TOKEN') or secret('file:/run/secrets/hook').",
    )


def concealed(value: str | Secret) -> Secret:
    """A secret as it is, and a plain text as one."""
    return value if isinstance(value, Secret) else Secret("text", value)


def reveal(value: str | Secret) -> str:
    """The text of a value that may be a secret."""
    return value.reveal() if isinstance(value, Secret) else value
