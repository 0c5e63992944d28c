"""Verdicts on trials: what may come out of an attack, and what may not."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Name: TypeAlias = Literal[
    "exact",  # the results are those of an undisturbed run
    "refused",  # an error of the right name, and nothing was changed
    "wrong",  # other results, and no error
    "hang",  # no end within the time limit
    "internal",  # error[internal], error[query-failed], an exception that is no StrandlineError
    "trace",  # a trace of Python or Java on the screen
    "misnamed",  # an error, but not one for this damage
    "unnamed",  # the right error, but the damaged file is not named
    "changed",  # the right error, but files were changed
    "escaped",  # a file outside of the directories given, or code of the data that was executed
    "skipped",  # not possible here; the note says why
]
ALLOWED: Final = ("exact", "refused", "skipped")
INTERNAL: Final = ("internal", "query-failed")

_TRACE: Final = re.compile(
    r"Traceback \(most recent call last\)|panicked at|^\s+at (org|java|scala|py4j|jdk)\."
    r"|\b(Py4J\w*Error|java\.lang\.\w+)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a trial; `note` says what happened, for whoever looks into it."""

    name: Name
    note: str = ""
    weight: int = 1  # how many damaged things the trial had

    @property
    def is_violation(self) -> bool:
        return self.name not in ALLOWED


@dataclass(frozen=True, slots=True)
class Trial:
    """One attack, made again by the same seed, kind and number."""

    seed: int
    kind: str
    number: int

    @property
    def key(self) -> str:
        return f"{self.seed}/{self.kind}/{self.number}"

    @property
    def command(self) -> str:
        return f"python tests/attack/run.py --seed {self.seed} --kind '{self.kind}' --trial {self.number}"


@dataclass(slots=True)
class Tally:
    """The outcomes of the trials of one kind, or of several."""

    kinds: int = 1
    trials: int = 0
    weight: int = 0
    exact: int = 0
    refused: int = 0
    skipped: int = 0
    violations: dict[str, int] = field(default_factory=dict)

    def add(self, verdict: Verdict) -> None:
        if verdict.name == "skipped":
            self.skipped += 1
            return
        self.trials += 1
        self.weight += verdict.weight
        if verdict.name == "exact":
            self.exact += 1
        elif verdict.name == "refused":
            self.refused += 1
        else:
            self.violations[verdict.name] = self.violations.get(verdict.name, 0) + 1


def has_trace(screen: str) -> bool:
    """Whether a user would see a trace."""
    return _TRACE.search(screen) is not None


def judge_refusal(code: str, text: str, allowed: frozenset[str], names: tuple[str, ...], changes: list[str]) -> Verdict:
    """The verdict on a run that ended with an error: `names` are those of damaged files, one of which it must say."""
    said = " ".join(text.split())[:400]
    if code in INTERNAL:
        return Verdict("internal", said)
    if has_trace(text):
        return Verdict("trace", said)
    if code not in allowed:
        return Verdict("misnamed", said)
    if names and not any(name in text for name in names):
        return Verdict("unnamed", f"{' or '.join(names)} is not in: {said}")
    if changes:
        return Verdict("changed", f"{', '.join(changes[:6])} after: {said}")
    return Verdict("refused", said)
