"""Software bill of materials of this installation, with versions and licences.

In the format of CycloneDX. It is built from the metadata of the installed packages. The Java archives in PySpark are
listed by their file names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any, Final

from strandline.core.errors import SetupError

ROOT: Final = "strandline"
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?([^;]*)(?:;(.*))?")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_ARCHIVE: Final = re.compile(r"(?P<name>.+?)-(?P<version>\d[\w.+-]*?)\.jar")
_LONGEST_LICENCE: Final = 80  # characters; some packages give the whole text


@dataclass(frozen=True, slots=True)
class Requirement:
    """A requirement of a package: a name, its extras, and the extra that needs it."""

    name: str
    extras: frozenset[str]
    of_extra: str | None


@dataclass(slots=True)
class Component:
    """An installed package; `extras` are those of strandline that need it, None among them if it is always needed."""

    package: Distribution
    extras: set[str | None] = field(default_factory=set)
    needs: set[str] = field(default_factory=set)


def bill_of_materials() -> dict[str, Any]:
    """The installed packages that strandline and its extras need, directly or through others."""
    components = _closure()
    references = {name: _reference(name, component) for name, component in components.items()}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {**_described(ROOT, components[ROOT]), "type": "application"}},
        "components": [
            *(_described(name, component) for name, component in sorted(components.items()) if name != ROOT),
            *_archives(components.get("pyspark")),
        ],
        "dependencies": [
            {"ref": references[name], "dependsOn": sorted(references[needed] for needed in component.needs - {ROOT})}
            for name, component in sorted(components.items())
        ],
    }


def requirement(line: str) -> Requirement | None:
    """A requirement as in metadata. Platform conditions are ignored: what is installed counts."""
    parsed = _REQUIREMENT.fullmatch(line)
    if parsed is None:
        return None
    extra = _EXTRA.search(parsed[4] or "")
    extras = frozenset(text.strip() for text in (parsed[2] or "").split(",") if text.strip())
    name = re.sub(r"[-_.]+", "-", parsed[1]).lower()
    return Requirement(name, extras, extra[1] if extra else None)


def _closure() -> dict[str, Component]:
    """All packages that can be reached, by name."""
    try:
        components = {ROOT: Component(distribution(ROOT))}
    except PackageNotFoundError:
        raise SetupError(
            "strandline is not installed as a package: its requirements are unknown",
            code="not-installed",
            hint="Install it, then run this again.",
        ) from None
    visited: set[tuple[str, frozenset[str], str | None]] = set()
    extras = frozenset(components[ROOT].package.metadata.get_all("Provides-Extra") or ())
    pending: list[tuple[str, frozenset[str], str | None]] = [(ROOT, frozenset(), None)]
    pending += [(ROOT, frozenset({extra}), extra) for extra in sorted(extras)]
    while pending:
        visit = pending.pop()
        if visit in visited:
            continue
        visited.add(visit)
        name, requested_extras, reason = visit
        for needed in filter(None, map(requirement, components[name].package.requires or ())):
            if needed.of_extra is not None and needed.of_extra not in requested_extras:
                continue
            if name == ROOT and needed.of_extra is None and reason is not None:
                continue  # a base requirement does not belong to the extra
            try:
                component = components.setdefault(needed.name, Component(distribution(needed.name)))
            except PackageNotFoundError:
                continue
            component.extras.add(reason)
            components[name].needs.add(needed.name)
            pending.append((needed.name, needed.extras, reason))
    return components


def _described(name: str, component: Component) -> dict[str, Any]:
    metadata = component.package.metadata
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": _reference(name, component),
        "name": metadata["Name"],
        "version": component.package.version,
        "purl": _reference(name, component),
        "licenses": _licences(component.package),
    }
    if name != ROOT:
        described["scope"] = "required" if None in component.extras else "optional"
    extras = sorted(extra for extra in component.extras if extra is not None)
    if extras and None not in component.extras:
        described["properties"] = [{"name": "strandline:extra", "value": extra} for extra in extras]
    return described


def _licences(package: Distribution) -> list[dict[str, Any]]:
    """Licence of a package by its metadata: an expression, a short text, or a classifier; empty without any."""
    metadata = package.metadata
    if "License-Expression" in metadata:
        return [{"expression": metadata["License-Expression"]}]
    classifiers = [text.rsplit(" :: ", 1)[-1] for text in metadata.get_all("Classifier") or () if "License ::" in text]
    text = " ".join(" ".join(metadata.get_all("License") or ()).split())
    if text and len(text) <= _LONGEST_LICENCE and text.upper() != "UNKNOWN":
        return [{"license": {"name": text}}]
    return [{"license": {"name": name}} for name in classifiers if name != "OSI Approved"]


def _archives(pyspark: Component | None) -> Iterator[dict[str, Any]]:
    """The archives of Java that PySpark brings along; their licences are in PySpark's own notices."""
    for file in sorted(map(str, pyspark.package.files or ())) if pyspark is not None else ():
        archive = _ARCHIVE.fullmatch(file.rsplit("/", 1)[-1])
        if archive is not None:
            yield {
                "type": "library",
                "bom-ref": f"pyspark/{archive[0]}",
                "name": archive["name"],
                "version": archive["version"],
                "scope": "required",
                "properties": [{"name": "strandline:inside", "value": "pyspark"}],
            }


def _reference(name: str, component: Component) -> str:
    return f"pkg:pypi/{name}@{component.package.version}"
