"""What a kind of trial is."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from attack.verdict import Verdict
from attack.world import World

Run: TypeAlias = Callable[[World, random.Random], Verdict]
Place: TypeAlias = Literal["spark", "local", "process"]


@dataclass(frozen=True)
class Kind:
    """One way to attack. `place` is what it needs: the Spark that stays, nothing, or processes of its own."""

    name: str
    run: Run
    trials: int  # of a full run
    place: Place = "spark"
