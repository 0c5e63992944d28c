"""Polars, imported when something of it is first used.

A scalar function is declared together with its Polars form. Parsing, binding, planning and the reference interpreter
read declarations, but need not load Polars.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

__all__ = ["pl"]


class _LazyModule:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)  # the next look-up is an ordinary one
        return value


if not TYPE_CHECKING:
    pl = _LazyModule("polars")
