"""The arguments of a source or sink, taken one by one, with errors that name them."""

from __future__ import annotations

from typing import Any, ClassVar

from strandline.core.errors import Span, StrandlineError
from strandline.core.security.redaction import HIDDEN, is_sensitive, redact
from strandline.core.security.secret import Secret, concealed
from strandline.logical.catalog import Argument, ConnectorCall


class CallArguments:
    """Arguments of a connector call. Subclasses define the class, the code and the hint of its errors."""

    error_class: ClassVar[type[StrandlineError]]
    error_code: ClassVar[str]
    error_hint: ClassVar[str]

    def __init__(self, call: ConnectorCall, span: Span | None = None) -> None:
        self.call = call
        self.span = span
        self.left = dict(call.options)

    def positional(self, index: int, what: str) -> Argument:
        if index >= len(self.call.arguments):
            raise self.error(f"{self.call.function}() needs {what}")
        return self.call.arguments[index]

    def required(self, index: int, name: str) -> str:
        """A text that must be given: at its place, or by its name."""
        if index < len(self.call.arguments):
            value = self.call.arguments[index]
        elif name in self.left:
            value = self.left.pop(name)
        else:
            raise self.error(f"{self.call.function}() needs {name}")
        if not isinstance(value, str) or not value:
            raise self.error(f"{name} of {self.call.function}() must be a text, not {shown(name, value)}")
        return value

    def required_or_secret(self, index: int, name: str) -> str | Secret:
        """The same for a text that may be a secret."""
        value = self.call.arguments[index] if index < len(self.call.arguments) else self.left.get(name)
        if not isinstance(value, Secret):
            return self.required(index, name)
        self.left.pop(name, None)
        return value

    def secret(self, value: Argument, name: str) -> Secret | None:
        """The value of an option that is not shown: a reference to a secret, or a text that is as good as one."""
        if value is None or isinstance(value, Secret):
            return value
        if not isinstance(value, str) or not value:
            raise self.error(f"{name} of {self.call.function}() must be a non-empty text or secret('env:NAME')")
        return concealed(value)

    def option(self, name: str, kind: type | tuple[type, ...], default: Argument) -> Any:
        """The value of an option, which is of that kind, or the default."""
        value = self.left.pop(name, default)
        if value is not default and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise self.error(f"invalid value of option {name} of {self.call.function}(): {shown(name, value)}")
        return value

    def dotted(self) -> dict[str, str | Secret]:
        """The options with a dot in their name, which are settings of a library."""
        names = [name for name in self.left if "." in name]
        return {name: text_of(self.left.pop(name)) for name in names}

    def done(self, most: int) -> None:
        if len(self.call.arguments) > most:
            raise self.error(f"{self.call.function}() takes at most {most} positional arguments")
        if self.left:
            raise self.error(f"{self.call.function}() has no option {next(iter(self.left))}")

    def error(self, message: str) -> StrandlineError:
        return self.error_class(message, code=self.error_code, hint=self.error_hint, span=self.span)


def text_of(value: Argument) -> str | Secret:
    """An argument as a text; a secret stays one."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, Secret) else str(value)


def shown(option: str, value: Argument) -> str:
    return HIDDEN if is_sensitive(option) and not isinstance(value, Secret) else redact(repr(value))
