"""Prices of work units on this machine in CPU seconds, by physical operator, fitted to measurements.

`strandline calibrate` measures the real operators and writes the constants to a file of this user; the default ones
were measured in the same way on another machine. Results never depend on them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

from strandline.core.errors import StrandlineError
from strandline.planner.joins.rates import JoinCosts

COSTS_VARIABLE: Final = "STRANDLINE_COSTS"  # the variable that names a file of constants, or "built-in"
BUILT_IN: Final = "built-in"

# An ordinary join for the join-order search, which ignores segments and widths.
_SEGMENTS: Final = 5.0
_REWRITES: Final = 2.0
_ROW_BYTES: Final = 48.0


@dataclass(frozen=True)
class Prices:
    """CPU seconds per unit of work, by operator; `origin` is where they come from."""

    seconds: Mapping[str, Mapping[str, float]]
    origin: str = BUILT_IN
    facts: Mapping[str, Any] = field(default_factory=dict)

    def cost(self, operator: str, work: Mapping[str, float]) -> float:
        """Seconds of some work of an operator."""
        # What was not measured looks at a row once, as a projection does.
        prices = self.seconds.get(operator) or self.seconds.get("Project", {})
        return sum(amount * prices.get(unit, 0.0) for unit, amount in work.items())

    @cached_property
    def joins(self) -> JoinCosts:
        """What the search for an order of joins goes by: rows, results and pairs of an ordinary join."""
        prices = self.seconds["HashJoin"]

        def of(unit: str) -> float:
            return prices.get(unit, 0.0)

        arrival = of("row") + _SEGMENTS * of("probe") + _REWRITES * of("rewritten") + _ROW_BYTES * of("byte")
        result = of("result") + of("pair") + 2 * _ROW_BYTES * of("byte")
        return JoinCosts(max(arrival, 1e-9), result, max(of("pair"), 1e-10))

    def to_json(self) -> dict[str, Any]:
        return {"seconds": {name: dict(units) for name, units in self.seconds.items()}, "facts": dict(self.facts)}


def load_prices() -> Prices:
    """The prices of this machine if it was calibrated, else the built-in ones."""
    named = os.environ.get(COSTS_VARIABLE)
    if named == BUILT_IN:
        return built_in()
    path = Path(named) if named else calibration_file()
    if path is None:
        return built_in()
    try:
        changed = path.stat().st_mtime_ns
    except OSError:
        if named:
            message = f"{COSTS_VARIABLE} names a file that does not exist: {path}"
            hint = f"Create it with strandline calibrate --out {path}, or unset {COSTS_VARIABLE}."
            raise StrandlineError(message, code="bad-costs", hint=hint) from None
        return built_in()
    return _read(path, changed)


def calibration_file() -> Path | None:
    """Calibration file of this machine; None if the user has no home."""
    try:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        return None
    return cache / "strandline" / "costs-v2.json"  # version 1 had other names of operators


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> Prices:
    try:
        data = json.loads(path.read_text())
        seconds = {str(k): {str(u): float(s) for u, s in units.items()} for k, units in data["seconds"].items()}
        seconds["HashJoin"]  # without it there is no order of joins
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        hint = "Remove it, or run strandline calibrate again."
        raise StrandlineError(f"{path} is not a calibration file", code="bad-costs", hint=hint) from None
    return Prices(seconds, str(path), data.get("facts", {}))


@lru_cache(maxsize=1)
def built_in() -> Prices:
    data = json.loads(Path(__file__).with_name("prices.json").read_text())
    return Prices(data["seconds"], BUILT_IN, data.get("facts", {}))
