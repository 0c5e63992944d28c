"""Walks over the syntax tree: the nodes of a clause, and a tree with other nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any, TypeVar

from strandline.sql import ast

Tree = TypeVar("Tree")


def own_nodes(tree: object) -> Iterator[ast.Node]:
    """The nodes of a tree, or of several; those of a query inside belong to that query."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from own_nodes(part)
    elif isinstance(tree, ast.Node) and not isinstance(tree, ast.Query):
        yield tree
        yield from own_nodes(tuple(ast.children(tree)))


def rewrite(tree: Tree, change: Callable[[ast.Node], ast.Node], into_queries: bool = True) -> Tree:
    """The tree with every node changed, from the bottom up."""
    changed: Any = tree
    if isinstance(tree, tuple):
        changed = tuple(rewrite(part, change, into_queries) for part in tree)
    elif isinstance(tree, ast.Node) and (into_queries or not isinstance(tree, ast.Query)):
        parts = {field.name: getattr(tree, field.name) for field in fields(tree) if field.name != "span"}
        changed = change(replace(tree, **{name: rewrite(part, change, into_queries) for name, part in parts.items()}))
    return changed  # type: ignore[no-any-return]
