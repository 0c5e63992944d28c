"""Attack strandline: `make attack`, or one trial again with `--seed S --kind K --trial T`.

Trials run in a few processes that stay, each with a Spark of its own; this one hands them out, watches the clock, and
adds up the verdicts.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import multiprocessing
import os
import queue
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
if __package__ is None or __package__ == "":  # run as a script
    sys.path.insert(0, str(HERE.parent))

from attack.hook import family  # noqa: E402
from attack.report import render, write_docs  # noqa: E402
from attack.verdict import Tally, Trial, Verdict  # noqa: E402

os.environ["STRANDLINE_COSTS"] = "built-in"  # plans are the same whatever this machine was calibrated to

TRIAL_SECONDS: Final = 400.0  # a base run may be part of it
SEEDS: Final = HERE / "seeds.txt"
SHORT: Final = (
    "checkpoint/state-segment/bit-flipped",
    "checkpoint/state-manifest/stale",
    "checkpoint/batch-record/digit-changed",
    "checkpoint/delivered-log/line-lost",
    "checkpoint/identity/truncated",
    "checkpoint/commit/deleted",
    "checkpoint/results/of-another-run",
    "checkpoint/rejected-rows/emptied",
    "tree/checkpoint/older",
    "tree/results/older",
    "tree/shard/of-another-run",
    "kill/before open",
    "kill/before os.rename",
    "kill/at random",
    "kill/after the end",
    "power/emptied",
    "power/truncated",
    "input/*/bits flipped",
    "input/json/bad value",
    "input/csv/CR line ends",
    "names/*",
    "code/CSV file",
    "code/answer of a webhook",
    "webhook/redirect 307",
    "http/length and chunks",
)


def read_seeds() -> list[Trial]:
    """Trials that once failed."""
    lines = [line.split("|") for line in SEEDS.read_text().splitlines() if line and not line.startswith("#")]
    return [Trial(int(seed), kind.strip(), int(number)) for kind, seed, number, _ in lines]


def plan(kinds: Sequence[str], seed: int, share: float) -> list[Trial]:
    """The trials of a run: kind by kind in turn, so that one that is cut short has some of each."""
    from attack.kinds import all_kinds

    known = all_kinds()
    chosen = [kind for kind in known.values() if not kinds or any(fnmatch.fnmatch(kind.name, k) for k in kinds)]
    trials = [
        (number / kind.trials, Trial(seed, kind.name, number))
        for kind in chosen
        for number in range(max(1, round(kind.trials * share)))
    ]
    random.Random(seed).shuffle(trials)
    return [trial for _, trial in sorted(trials, key=lambda entry: entry[0])]


def run_trial(world: Any, trial: Trial) -> Verdict:
    """Make one trial. What fails in it may be a defect of the attack; it counts as one of the product until that is
    known."""
    from attack.kinds import all_kinds

    try:
        return all_kinds()[trial.kind].run(world, random.Random(trial.key))
    except Exception:
        return Verdict("internal", "the trial itself failed: " + traceback.format_exc()[-900:])


def serve(connection: Connection, directory: Path, names: tuple[str, ...]) -> None:
    """An attacking process: trials come, verdicts go."""
    from attack.world import World

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    world = World(directory, names)
    try:
        while (trial := connection.recv()) is not None:
            connection.send((trial, run_trial(world, trial)))
    except EOFError:
        pass
    finally:
        world.close()


class Attacker:
    """An attacking process, as the one that hands out trials sees it."""

    def __init__(self, root: Path, number: int, names: tuple[str, ...]) -> None:
        self._root, self._number, self._names, self._starts = root, number, names, 0
        self.trial: Trial | None = None
        self._start()

    def _start(self) -> None:
        self._starts += 1
        ours, theirs = multiprocessing.Pipe()
        directory = self._root / f"{self._number}-{self._starts}"
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=serve, args=(theirs, directory, self._names))
        self.process.start()
        theirs.close()
        self.connection = ours
        self._since = time.monotonic()

    def give(self, trial: Trial) -> None:
        self.trial, self._since = trial, time.monotonic()
        self.connection.send(trial)

    def take(self) -> tuple[Trial, Verdict]:
        trial = self.trial
        assert trial is not None
        self.trial = None
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.restart()
            return trial, Verdict("internal", "the process that ran the query died")

    @property
    def is_overdue(self) -> bool:
        return self.trial is not None and time.monotonic() - self._since > TRIAL_SECONDS

    def restart(self) -> None:
        self.kill()
        self._start()

    def kill(self) -> None:
        for pid in family(self.process.pid or -1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.join()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.send(None)
        self.process.join(30)
        if self.process.is_alive():
            self.kill()


def attack(
    trials: Iterable[Trial], processes: int, minutes: float | None, names: tuple[str, ...] = ()
) -> Iterator[tuple[Trial, Verdict]]:
    """Make trials, and tell of each when it is over."""
    waiting: queue.SimpleQueue[Trial] = queue.SimpleQueue()
    for trial in trials:
        waiting.put(trial)
    end = time.monotonic() + 60 * minutes if minutes else float("inf")
    scratch = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="strandline-attack-", dir=scratch, ignore_cleanup_errors=True) as root:
        attackers = [Attacker(Path(root), number, names) for number in range(processes)]
        try:
            while True:
                for attacker in attackers:
                    if attacker.trial is None and not waiting.empty() and time.monotonic() < end:
                        attacker.give(waiting.get())
                busy = {attacker.connection: attacker for attacker in attackers if attacker.trial is not None}
                if not busy:
                    return
                for connection in wait(list(busy), timeout=1.0):
                    assert isinstance(connection, Connection)
                    yield busy[connection].take()
                for attacker in attackers:
                    if attacker.is_overdue and attacker.trial is not None:
                        trial, attacker.trial = attacker.trial, None
                        attacker.restart()
                        yield trial, Verdict("hang", f"no verdict within {TRIAL_SECONDS:.0f} s")
        finally:
            for attacker in attackers:
                attacker.close()


def choose_trials(options: argparse.Namespace) -> list[Trial]:
    """What the options ask for."""
    if options.short:
        seen = read_seeds()
        return [*seen, *(trial for trial in plan(SHORT, options.seed, 0.0) if trial not in seen)]
    trials = plan(options.kind, options.seed, 1.0)
    if options.trial is not None:
        return [Trial(options.seed, kind, options.trial) for kind in dict.fromkeys(trial.kind for trial in trials)]
    if options.trials is None:
        return [*(read_seeds() if not options.kind else ()), *trials]
    if options.trials <= len(trials):
        return trials[: options.trials]
    return plan(options.kind, options.seed, options.trials / max(1, len(trials)))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="decides every trial")
    parser.add_argument("--kind", action="append", default=[], help="only these kinds, as a pattern: 'kill/*'")
    parser.add_argument("--trial", type=int, help="only the trial of this number")
    parser.add_argument("--trials", type=int, help="about how many; default: all of a full run")
    parser.add_argument("--minutes", type=float, help="begin no trial after so long")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--scenarios", default="", help="only these, separated by commas")
    parser.add_argument("--short", action="store_true", help="seeds that once failed, and one trial of some kinds")
    parser.add_argument("--list", action="store_true", help="show the kinds")
    parser.add_argument("--write-docs", action="store_true", help="put the table into docs/reliability.md")
    parser.add_argument("--log", type=Path, help="a file for one line per trial")
    options = parser.parse_args(arguments)
    trials = choose_trials(options)
    if options.list:
        print(*dict.fromkeys(trial.kind for trial in trials), sep="\n")
        return 0
    names = tuple(filter(None, options.scenarios.split(",")))
    tallies: dict[str, Tally] = {}
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(options.log.open("a")) if options.log else None
        verdicts = attack(trials, min(options.processes, len(trials)), options.minutes, names)
        for number, (trial, verdict) in enumerate(verdicts, 1):
            tallies.setdefault(trial.kind, Tally()).add(verdict)
            if log is not None:
                note = " ".join(verdict.note.split())
                print(f"{verdict.name}\t{trial.kind}\t{trial.number}\t{note}", file=log, flush=True)
            if verdict.is_violation:
                only = f" --scenarios {options.scenarios}" if names else ""
                print(f"{verdict.name}: {trial.command}{only}\n    {verdict.note}", flush=True)
            elif options.trial is not None:
                print(f"{verdict.name}: {verdict.note}")
            if number % 100 == 0:
                print(f"{number} trials, {time.monotonic() - began:.0f} s", flush=True)
    print(render(tallies))
    print(f"{(time.monotonic() - began) / 60:.1f} minutes, seed {options.seed}")
    if options.write_docs:
        write_docs(tallies, options.seed)
    return 1 if any(tally.violations for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
