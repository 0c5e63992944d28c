"""The bill of materials is that of this environment."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest

from strandline.apps.sbom import Requirement, bill_of_materials, requirement


@pytest.fixture(scope="module")
def bill() -> dict[str, Any]:
    return bill_of_materials()


def component(bill: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each for each in bill["components"] if each["name"].lower() == name and "purl" in each]
    return dict(found)


def test_what_is_declared_is_there_with_version_and_licence(bill: dict[str, Any]) -> None:
    for name in ("pyspark", "pyarrow", "polars", "numpy", "numba", "typer", "rich", "psutil"):
        found = component(bill, name)
        assert found["version"] == version(name) and found["scope"] == "required" and found["licenses"], found
    assert component(bill, "py4j")["scope"] == "required", "what PySpark needs"
    assert bill["metadata"]["component"]["name"] == "strandline"


def test_what_an_extra_brings_is_marked(bill: dict[str, Any]) -> None:
    kafka = component(bill, "confluent-kafka")
    assert kafka["scope"] == "optional"
    assert kafka["properties"] == [{"name": "strandline:extra", "value": "kafka"}]
    extras = {each["value"] for each in component(bill, "psycopg")["properties"]}
    assert extras == {"postgresql", "verify"}
    assert component(bill, "psycopg-binary")["scope"] == "optional", "an extra of an extra"


def test_tools_of_development_are_not_there(bill: dict[str, Any]) -> None:
    names = {each["name"].lower() for each in bill["components"]}
    assert not names & {"pytest", "ruff", "mypy", "hypothesis"}


def test_the_archives_of_java_are_there(bill: dict[str, Any]) -> None:
    archives = [each for each in bill["components"] if each.get("properties") == [
        {"name": "strandline:inside", "value": "pyspark"}]]  # fmt: skip
    assert len(archives) > 50 and any(each["name"].startswith("spark-core") for each in archives)


def test_references_lead_to_components(bill: dict[str, Any]) -> None:
    known = {each["bom-ref"] for each in (bill["metadata"]["component"], *bill["components"])}
    assert len(known) == 1 + len(bill["components"])
    for each in bill["dependencies"]:
        assert each["ref"] in known and set(each["dependsOn"]) <= known


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("numpy>=2.2", Requirement("numpy", frozenset(), None)),
        (
            "psycopg[binary,pool]>=3.2; extra == 'verify'",
            Requirement("psycopg", frozenset({"binary", "pool"}), "verify"),
        ),
        ("Typing_Extensions (>=4) ; python_version < '3.12'", Requirement("typing-extensions", frozenset(), None)),
        ('x; sys_platform == "win32" and extra == "all"', Requirement("x", frozenset(), "all")),
        ("pip @ file:///x", Requirement("pip", frozenset(), None)),
    ],
)
def test_requirements(line: str, expected: Requirement) -> None:
    assert requirement(line) == expected


def test_the_command_prints_json() -> None:
    done = subprocess.run([sys.executable, "-m", "strandline", "sbom"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["bomFormat"] == "CycloneDX"
