"""The table of an attack, for the screen and for docs/reliability.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from attack.verdict import Tally

PAGE: Final = Path(__file__).parent.parent.parent / "docs" / "reliability.md"
BEGIN: Final = "<!-- attack: begin -->"
END: Final = "<!-- attack: end -->"


def grouped(tallies: Mapping[str, Tally]) -> dict[str, Tally]:
    """By the first two parts of their names: all damage to one kind of file is one line. What could not be tried at all
    is left out."""
    groups: dict[str, list[Tally]] = {}
    for kind, tally in sorted(tallies.items()):
        if tally.trials:
            groups.setdefault("/".join(kind.split("/")[:2]), []).append(tally)
    return {name: total(members) for name, members in groups.items()}


def total(tallies: Iterable[Tally]) -> Tally:
    whole = Tally(kinds=0)
    for tally in tallies:
        whole.kinds += tally.kinds
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
    lines = [f"{'kind':{width}}  kinds  trials   exact  refused  violations"]
    for kind, tally in [*shown.items(), ("all", total(shown.values()))]:
        figures = f"{tally.kinds:5}  {tally.trials:6,}  {tally.exact:6,}  {tally.refused:7,}"
        lines.append(f"{kind:{width}}  {figures}  {_violations(tally)}")
    return "\n".join(lines)


def markdown(tallies: Mapping[str, Tally], seed: int) -> str:
    shown = grouped(tallies)
    whole = total(shown.values())
    files = sum(tally.weight for kind, tally in tallies.items() if kind.startswith("input/"))
    lines = [
        f"Seed {seed}: {whole.trials:,} trials of {whole.kinds:,} kinds; those of input have {files:,} damaged files.",
        "",
        "| attacked | kinds | trials | exact | refused | violations |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for kind, tally in [*shown.items(), ("**all**", whole)]:
        figures = f"{tally.kinds} | {tally.trials:,} | {tally.exact:,} | {tally.refused:,}"
        lines.append(f"| {kind} | {figures} | {_violations(tally)} |")
    return "\n".join(lines)


def write_docs(tallies: Mapping[str, Tally], seed: int) -> None:
    """Replace the table of the page."""
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{markdown(tallies, seed)}\n{END}{after}")
