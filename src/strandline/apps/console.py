"""Output of commands: a spinner while they wait, and a summary at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from strandline.core.errors import StrandlineError, printable
from strandline.core.notices import is_shown_by_logging

if TYPE_CHECKING:
    from strandline.core.notices import Notice
    from strandline.database.query import Query


class SafeConsole(Console):
    """A console whose texts, which may come from data, cannot control the terminal. Styles are Rich's own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


out_console: Final = SafeConsole(highlight=False)
err_console: Final = SafeConsole(stderr=True, highlight=False)


def say(text: str) -> None:
    """Print a text as it is, to standard output."""
    out_console.print(text, markup=False, soft_wrap=True)


def say_notice(notice: Notice) -> None:
    """Print a notice to standard error, above a spinner, unless the log is there and has it."""
    if not is_shown_by_logging():
        err_console.print(str(notice), markup=False, soft_wrap=True, style="yellow")


def read_file(path: Path) -> str:
    """The text of a script or scenario."""
    try:
        return path.expanduser().read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise StrandlineError(f"cannot read {path}", code="missing-script", detail=str(error)) from None


@contextmanager
def status(text: str) -> Iterator[Callable[[str], None]]:
    """Show the present phase with a spinner; gives a function that shows another. Silent without a terminal."""
    if not err_console.is_terminal:
        yield lambda phase: None
        return
    with err_console.status(escape(text)) as spinner:
        yield lambda phase: spinner.update(escape(phase))


def show_log(path: Path | None) -> None:
    """Show the path of the log; on a terminal only."""
    if path is not None and err_console.is_terminal:
        err_console.print(f"Spark's log: {path}", markup=False, soft_wrap=True, style="bright_black")


def print_table(
    console: Console, title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()
) -> None:
    """Print a table of figures: columns to the right, except those whose heads are in `left`."""
    table = Table(title=title, title_justify="left")
    for head in heads:
        table.add_column(head, justify="left" if head in left else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def await_all(queries: Sequence[Query], interrupted: Callable[[], bool] = lambda: False) -> bool:
    """Wait until all queries have ended, and show their progress; false if the wait was interrupted first."""
    # Its import takes time, for which the prompt of the shell must not wait.
    from strandline.database.introspection.progress_meter import ProgressMeter

    meter = ProgressMeter(queries)
    with status("first batch") as show_phase:
        while not all(query.await_end(0.5 / len(queries)) for query in queries):
            if interrupted():
                return False
            meter.look()
            for query in queries:
                query.show_notices()
            doing = meter.phase() or f"{meter.rows_in:,} rows in, {meter.rows_out:,} results"
            show_phase(" │ ".join(filter(None, (doing, meter.line()))))
    return True


def summary(queries: Sequence[Query], out: Path | None, seconds: float, printed: bool = False) -> None:
    """Results of each query, and input of each stream. Where rows are printed, these are not for the same reader."""
    console = err_console if printed else out_console
    streams: dict[str, tuple[int, int, int]] = {}
    for query in queries:
        metrics = query.metrics()
        own = os.path.join(str(out), query.name) if out is not None else ""
        where = own if query.sink.location == os.path.abspath(own) else query.sink.display_location
        if out is not None or query.sink.location is not None:
            _print(console, f"{query.name}: {metrics['rows_out']:,} results in {where}")
        for stream, rows in metrics["rows_in"].items():
            streams[stream] = rows, metrics["late"][stream], metrics["rejected"][stream]
    for stream, (rows, late, rejected) in streams.items():
        place = f", written to {out}/_{{}}/{stream}" if out is not None else ""
        aside = [f"{late:,} late{place.format('late')}"] if late else []
        aside += [f"{rejected:,} rejected{place.format('rejected')}"] if rejected else []
        _print(console, f"{stream}: {'; '.join([f'{rows:,} rows', *aside])}")
    _print(console, f"done in {seconds:.1f} s" + ("; --out DIR writes the results to files" if out is None else ""))


def _print(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
