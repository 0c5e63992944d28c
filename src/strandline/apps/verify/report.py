"""Report of a verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from strandline.apps.verify.check import Verdict
from strandline.apps.verify.compare import TOLERANCE, Difference, Row
from strandline.core.temporal import show_instant
from strandline.runtime.kernels.batch import FROM, UNTIL

SHOWN: Final = 3  # differences of a query, and rows of a difference

EQUAL, DIFFERENT, INCOMPLETE = 0, 1, 3


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """0 only if everything was compared and everything was equal."""
    listed = list(verdicts)
    if any(not verdict.equal for verdict in listed):
        return DIFFERENT
    return EQUAL if all(verdict.complete for verdict in listed) else INCOMPLETE


def render(verdicts: Sequence[Verdict], oracle: str) -> str:
    """All verdicts, and the definition of equality."""
    lines = [line for verdict in verdicts for line in _verdict(verdict, oracle)]
    if any(verdict.rounded for verdict in verdicts):
        lines.append(f"DOUBLEs are equal if their relative difference is below {TOLERANCE:g}.")
    return "\n".join(lines)


def _verdict(verdict: Verdict, oracle: str) -> Iterator[str]:
    if verdict.unchecked is not None:
        yield f"{verdict.name}: not compared: {verdict.unchecked}"
        return
    share = round(100 * verdict.instants_with_rows / verdict.instants) if verdict.instants else 0
    compared = f"{verdict.instants:,} instants compared with {oracle}, {share} % of them with rows"
    if not verdict.complete:
        compared = (
            f"{verdict.instants:,} of {verdict.total_instants:,} instants compared with {oracle}, {share} % with rows"
        )
    if verdict.equal:
        yield f"{verdict.name}: {compared}: {'equal' if verdict.instants else 'no rows'}"
        return
    yield f"{verdict.name}: {compared}: {len(verdict.differences):,} DIFFER"
    for difference in verdict.differences[:SHOWN]:
        yield from _difference(difference, oracle)
    if len(verdict.differences) > SHOWN:
        yield f"  and {len(verdict.differences) - SHOWN:,} more"
    yield from _smallest(verdict)


def _difference(difference: Difference, oracle: str) -> Iterator[str]:
    yield f"  at {show_instant(difference.instant)}"
    width = len(f"only {oracle}")
    for label, rows in (("only here", difference.only_here), (f"only {oracle}", difference.only_there)):
        for row in rows[:SHOWN]:
            yield f"    {label:<{width}}  {_row(row)}"
        if len(rows) > SHOWN:
            yield f"    {label:<{width}}  and {len(rows) - SHOWN:,} more"


def _smallest(verdict: Verdict) -> Iterator[str]:
    if verdict.smallest is None:
        yield "  the local engine does not reproduce it on the same rows"
        return
    yield "  smallest failing input, in order of arrival:"
    for recorded in verdict.smallest:
        for row in recorded.rows.drop(FROM, UNTIL, strict=False).rows():
            yield f"    {recorded.stream.name}  {_row(row)}"


def _row(row: Row) -> str:
    return f"({', '.join(map(_value, row))})"


def _value(value: object) -> str:
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case str():
            return repr(value)
    return str(value)
