"""The table of an attack, for the screen and for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attack.verdict import Tally

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "reliability.md"
BEGIN: Final = "<!-- attack: begin -->"
END: Final = "<!-- attack: end -->"


def grouped(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """Kinds in order; what could not be tried at all is left out."""
    return {kind: tally for kind, tally in sorted(tallies.items()) if tally.trials}


def total(tallies: Mapping[str, Tally]) -> Tally:
    whole = Tally()
    for tally in tallies.values():
        whole.trials += tally.trials
        whole.weight += tally.weight
        whole.exact += tally.exact
        whole.refused += tally.refused
        for name, count in tally.violations.items():
            whole.violations[name] = whole.violations.get(name, 0) + count
    return whole


def _violations(tally: Tally) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(tally.violations.items())) or "0"


def render(tallies: Mapping[str, Tally]) -> str:
    """The table as text."""
    shown = grouped(tallies)
    width = max([len(kind) for kind in shown] + [5])
    lines = [f"{'kind':{width}}  trials   exact  refused  violations"]
    for kind, tally in [*shown.items(), ("all", total(shown))]:
        lines.append(
            f"{kind:{width}}  {tally.trials:6,}  {tally.exact:6,}  {tally.refused:7,}  {_violations(tally)}"
        )
    return "\n".join(lines)


def markdown(tallies: Mapping[str, Tally], seed: int) -> str:
    shown = grouped(tallies)
    whole = total(shown)
    lines = [
        f"Seed {seed}: {whole.trials:,} trials of {len(shown)} kinds; {whole.weight:,} damaged files and rows among them.",
        "",
        "| kind | trials | exact | refused | violations |",
        "| --- | ---: | ---: | ---: | --- |",
    ]
    for kind, tally in [*shown.items(), ("**all**", whole)]:
        lines.append(f"| {kind} | {tally.trials:,} | {tally.exact:,} | {tally.refused:,} | {_violations(tally)} |")
    return "\n".join(lines)


def write_docs(tallies: Mapping[str, Tally], seed: int) -> None:
    """Replace the table of the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{markdown(tallies, seed)}\n{END}{after}")
