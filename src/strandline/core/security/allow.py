"""Confinement: the files, hosts, connectors, functions and secrets that SQL may access.

Connectors declare their resources (`reaches`), and `Allow.check` alone decides, when a stream or a sink is declared,
before a connector touches anything.
"""

from __future__ import annotations

import fnmatch
import glob
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from strandline.core.arguments import check_fields
from strandline.core.errors import SetupError, Span
from strandline.core.security.secret import Secret


@dataclass(frozen=True, slots=True)
class FilePath:
    """A file or directory that is read or written, and all below it."""

    path: str

    def __str__(self) -> str:
        return f"the path {self.path}"


@dataclass(frozen=True, slots=True)
class Host:
    """A network address that is connected to or listened on."""

    name: str
    port: int | None = None

    def __str__(self) -> str:
        name = f"[{self.name}]" if ":" in self.name else self.name
        return f"the host {name}" if self.port is None else f"the host {name}:{self.port}"


@dataclass(frozen=True, slots=True)
class Unconfined:
    """A resource that no rule can bound, such as a setting of a library that runs a command."""

    what: str

    def __str__(self) -> str:
        return self.what


Reach: TypeAlias = FilePath | Host | Unconfined | Secret


@dataclass(frozen=True, slots=True)
class Allow:
    """Allow list of resources for SQL.

    `roots` are directories; a path is in one if its real path is, symbolic links and `..` resolved. `hosts` are `name`
    or `name:port`; `*.example.com` stands for the hosts below a domain, `*` for all. `secrets` are references as in
    `secret('…')`, with `*`. `connectors` and `functions` are names: connectors of other packages must be listed, and of
    ours and of the registered functions all are allowed if the list is None.
    """

    roots: tuple[str | os.PathLike[str], ...] = ()
    hosts: tuple[str, ...] = ()
    connectors: tuple[str, ...] | None = None
    functions: tuple[str, ...] | None = None
    secrets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("roots", "hosts", "connectors", "functions", "secrets"):
            if isinstance(getattr(self, name), str):
                raise SetupError(
                    f"{name} of Allow must be a tuple of strings, not a string",
                    code="usage",
                    hint=f'Write Allow({name}=("…",)).',
                )
        check_fields(self)

    @staticmethod
    def parse(rules: Sequence[str]) -> Allow | None:
        """`dir:/data`, `host:broker:9092`, `connector:file`, `function:vat`, `secret:env:NAME`, as the command line has
        them; None without any."""
        if not rules:
            return None
        by_kind: dict[str, list[str]] = {kind: [] for kind in _KINDS}
        for rule in rules:
            kind, separator, value = rule.partition(":")
            if kind not in _KINDS or not separator or not value:
                raise SetupError(
                    f'invalid --allow "{rule}"',
                    code="usage",
                    hint="Write dir:/data, host:broker:9092, connector:name, function:name or secret:env:NAME.",
                )
            by_kind[kind].append(value)
        return Allow(
            tuple(by_kind["dir"]),
            tuple(by_kind["host"]),
            tuple(by_kind["connector"]) or None,
            tuple(by_kind["function"]) or None,
            tuple(by_kind["secret"]),
        )

    def check(self, connector: str, is_foreign: bool, reaches: Iterable[Reach], span: Span | None) -> None:
        """Reject a connector whose name or resources are not allowed."""
        if (self.connectors is None and is_foreign) or not _is_listed(connector, self.connectors):
            raise _refusal(f"the connector {connector}()", f"--allow connector:{connector}", span)
        for reach in reaches:
            match reach:
                case FilePath(path) if not self.permits_path(path):
                    raise _refusal(str(reach), f"--allow dir:{os.path.dirname(os.path.realpath(path))}", span)
                case Host(name, port) if not self.permits_host(name, port):
                    raise _refusal(str(reach), f"--allow host:{str(reach).removeprefix('the host ')}", span)
                case Secret() if not self.permits_secret(reach):
                    raise _refusal(repr(reach), f"--allow secret:{reach.reference}", span)
                case Unconfined():
                    raise _refusal(str(reach), None, span)

    def check_function(self, name: str, span: Span | None) -> None:
        """Refuse a call of a registered Python function that is not listed."""
        if not _is_listed(name, self.functions):
            raise _refusal(f"the function {name}", f"--allow function:{name}", span)

    def permits_path(self, path: str | os.PathLike[str]) -> bool:
        real = os.path.realpath(path)
        roots = [os.path.realpath(os.path.expanduser(root)) for root in self.roots]
        return any(os.path.commonpath([real, root]) == root for root in roots)

    def permits_host(self, name: str, port: int | None) -> bool:
        folded = _folded(name)
        return any(_matches(rule, folded, port) for rule in self.hosts)

    def permits_secret(self, reference: Secret) -> bool:
        if reference.origin == "text":
            return True
        if any(fnmatch.fnmatchcase(reference.reference, rule) for rule in self.secrets if ".." not in reference.name):
            return True
        return reference.origin == "file" and self.permits_path(reference.name)


_KINDS = ("dir", "host", "connector", "function", "secret")


def first_wildcard(pattern: str) -> int:
    """Position of the first wildcard of a glob; its length without one."""
    return min((pattern.index(sign) for sign in "*?[" if sign in pattern), default=len(pattern))


def glob_reaches(pattern: str) -> list[Reach]:
    """Resources of a glob: all below its directory, wherever links lead, and the present matches."""
    wildcard = first_wildcard(pattern)
    directory = os.path.dirname(pattern[:wildcard]) if wildcard < len(pattern) else pattern
    if ".." in pattern[wildcard:].split("/"):  # it leads out again, from directories that there may be later
        return [Unconfined(f"the pattern {pattern} with .. after a wildcard")]
    matches = filter(os.path.isfile, glob.glob(pattern, recursive=True) if wildcard < len(pattern) else [])
    return [FilePath(directory or "."), *map(FilePath, matches)]


def url_reaches(location: str) -> Reach:
    """Resource of a path or a URL of an object store: a file, or the host or bucket of the URL."""
    parts = urlsplit(location)
    if "://" not in location:
        return FilePath(location)
    return FilePath(unquote(parts.path)) if parts.scheme.lower() == "file" else Host(parts.hostname or "", None)


def secrets_in(values: Iterable[object]) -> list[Reach]:
    """Secrets among arguments, also in lists."""
    secrets: list[Reach] = []
    for value in values:
        if isinstance(value, Secret):
            secrets.append(value)
        elif isinstance(value, list):
            secrets += secrets_in(value)
    return secrets


def _is_listed(name: str, names: tuple[str, ...] | None) -> bool:
    return names is None or name.lower() in {listed.lower() for listed in names}


def _folded(name: str) -> str:
    return name.strip("[]").rstrip(".").lower()


def _matches(rule: str, name: str, port: int | None) -> bool:
    host, separator, number = rule.rpartition(":")
    if not separator or not number.isdigit() or (":" in host and not host.endswith("]")):  # an IPv6 address, or no port
        host, number = rule, ""
    if number and (port is None or int(number) != port):
        return False
    host = _folded(host)
    return host == "*" or host == name or (host.startswith("*.") and name.endswith(host[1:]))


def _refusal(what: str, rule: str | None, span: Span | None) -> SetupError:
    hint = "Leave it out." if rule is None else f"To allow it, start the program with {rule}."
    return SetupError(f"{what} is not allowed here", code="not-allowed", hint=hint, span=span)
