"""Kinds of trials that damage what an interrupted run has left, and start it again."""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attack.scenarios import token
from attack.tree import DAMAGES, FILE_KINDS, changes, copy_tree, digest, file_kind, files_of, without_new_tables
from attack.verdict import Verdict, has_trace, judge_refusal
from attack.world import Base, Image, Outcome, World, pick

CHECKPOINT_CODES: Final = frozenset({"checkpoint-damaged", "checkpoint-version"})
RESULT_CODES: Final = frozenset({"results-missing", "results-damaged", "results-ahead", "results-exist"})
SOURCE_CODES: Final = CHECKPOINT_CODES | {"not-replayable", "journal-damaged", "received-damaged"}

# Which errors are right for damage to a file of a kind.
CODES: Final[dict[str, frozenset[str]]] = {
    "identity": CHECKPOINT_CODES | {"checkpoint-foreign", "script-changed"},
    "graph-version": CHECKPOINT_CODES | {"checkpoint-foreign", "script-changed"},
    "state-manifest": CHECKPOINT_CODES | {"state-missing", "state-format"},
    "state-segment": CHECKPOINT_CODES,
    "lease": CHECKPOINT_CODES | {"checkpoint-busy", "checkpoint-lost"},
    "received": SOURCE_CODES,
    "received-head": SOURCE_CODES,
    "journal": SOURCE_CODES,
    "journal-head": SOURCE_CODES,
    "kafka-offsets": SOURCE_CODES,
    "table-head": CHECKPOINT_CODES,
    "table-log": CHECKPOINT_CODES,
    "table-declaration": CHECKPOINT_CODES | {"table-changed"},
    "results": RESULT_CODES,
    "results-owner": RESULT_CODES | {"checkpoint-foreign", "script-changed"},
    "late-rows": RESULT_CODES,
    "rejected-rows": RESULT_CODES,
    "database": RESULT_CODES | {"sink-failed", "sink-unwritable"},
}
ATTACKED: Final = tuple(kind for kind in FILE_KINDS if kind not in ("input", "temporary", "learned", "flow"))
ALL_CODES: Final = frozenset().union(*CODES.values())
# Where a whole part is another one: the same statements create a table anew that is not there any more.
PART_CODES: Final = ALL_CODES | {"checkpoint-foreign", "table-replaced"}


def codes_of(kind: str) -> frozenset[str]:
    return CODES.get(kind, CHECKPOINT_CODES)


def applicable(world: World, kind: str) -> list[str]:
    """Scenarios that write files of a kind, by the name of what they read; sets are known by heart, so that a trial
    does not need all base runs."""
    writers = {
        "unit-log": ("csv", "json", "parquet", "two-streams"),
        "kafka-offsets": ("kafka",),
        "received": ("http",),
        "received-head": ("http",),
        "journal": ("events",),
        "journal-head": ("events",),
        "table-head": ("tables",),
        "table-log": ("tables",),
        "table-declaration": ("tables",),
        "rejected-rows": ("csv", "json", "case-arrivals", "case-intervals"),
        "late-rows": ("csv", "json", "case-arrivals", "case-intervals", "kafka", "http"),
        "database": ("sqlite",),
    }
    return [name for name in writers.get(kind, world.names) if name in world.names]


def draw_image(world: World, dice: random.Random, kind: str, twice: bool = False) -> tuple[Base, Image] | None:
    """A scenario and an image of it with a file of the kind."""
    names = applicable(world, kind)
    if not names:
        return None
    base = world.base(dice.choice(names))
    images = [image for image in base.images_with(kind) if len(image.files[kind]) > twice]
    return (base, pick(dice, images)) if images else None


def choose_file(dice: random.Random, paths: list[str]) -> str:
    """A file, mostly one of the newest: by the numbers in its name."""
    if dice.random() < 0.35:
        return dice.choice(paths)
    newest = max(map(_number, paths))
    return dice.choice([path for path in paths if _number(path) >= newest - 1])


def _number(path: str) -> int:
    numbers = re.findall(r"\d+", os.path.basename(path))
    return int(numbers[0]) if numbers else 0


def restart(
    world: World, base: Base, live: Path, allowed: frozenset[str], names: tuple[str, ...], what: str
) -> Verdict:
    """Start again what was damaged, and judge."""
    before = digest(live)
    outcome = world.resume(base.scenario, live)

    def refuse(outcome: Outcome) -> Verdict:
        found = changes(before, without_new_tables(before, digest(live)))
        return judge_refusal(outcome.code or "", outcome.text, allowed, names, found)

    verdict = world.judge(base, outcome, refuse)
    if not verdict.is_violation and has_trace(outcome.screen):
        verdict = Verdict("trace", outcome.screen[-300:])
    return Verdict(verdict.name, f"{base.scenario.name}, {what}: {verdict.note}")


def _names(*relative: str) -> tuple[str, ...]:
    """What an error may call a file: its last two parts, or what the first number in its name tells of one that is gone
    (`e/000000000000054-*`)."""
    names: list[str] = []
    for path in relative:
        folder, name = path.split("/")[-2:]
        names.append(f"{folder}/{name}")
        if number := re.match(r"\D{0,10}\d{6,}", name):
            names.append(f"{folder}/{number[0]}")
    return tuple(dict.fromkeys(names))


def _linked(relative: str) -> tuple[str, ...]:
    """The files at both ends of the links of a file: where two do not fit together, either may be the wrong one."""
    kind, number = file_kind(relative), _number(relative)
    if kind.startswith("table-"):  # a log has the identity that its declaration has, and its head the end of both
        table = relative.split("/")[-2]
        return (*_names(relative), f"{table}/head", f"{table}/table.json", f"{table}/000000000000000")
    if kind not in ("offset", "commit", "batch-record"):
        return _names(relative)
    batches = (number - 1, number, number + 1)
    return (
        *_names(relative),
        *(f"{folder}/{batch}" for batch in batches for folder in ("offsets", "commits")),
        *(f"batches/{batch:09d}" for batch in batches if batch >= 0),
    )


def damage_file(kind: str, damage: str) -> Callable[[World, random.Random], Verdict]:
    """One file of a kind is damaged, at a random moment of the run."""

    def trial(world: World, dice: random.Random) -> Verdict:
        drawn = draw_image(world, dice, kind)
        if drawn is None:
            return Verdict("skipped", f"no file of kind {kind}")
        base, image = drawn
        live = world.stage(base, image.path)
        relative = choose_file(dice, image.files[kind])
        if not DAMAGES[damage](live / relative, dice):
            return Verdict("skipped", f"{relative} cannot be {damage}")
        return restart(world, base, live, codes_of(kind), _names(relative), f"{image.label}: {relative} {damage}")

    return trial


def replace_stale(kind: str) -> Callable[[World, random.Random], Verdict]:
    """A file is as it was at an earlier moment."""

    def trial(world: World, dice: random.Random) -> Verdict:
        drawn = draw_image(world, dice, kind)
        if drawn is None:
            return Verdict("skipped", f"no file of kind {kind}")
        base, image = drawn
        for relative in dice.sample(image.files[kind], len(image.files[kind])):
            now = (image.path / relative).read_bytes()
            older = [
                other
                for other in base.images
                if other.commits <= image.commits
                and (other.path / relative).exists()
                and (other.path / relative).read_bytes() != now
            ]
            if older:
                live = world.stage(base, image.path)
                shutil.copyfile(dice.choice(older).path / relative, live / relative)
                names = _linked(relative)
                return restart(world, base, live, codes_of(kind), names, f"{image.label}: {relative} stale")
        return Verdict("skipped", f"files of kind {kind} never change")

    return trial


def swap_files(kind: str) -> Callable[[World, random.Random], Verdict]:
    """Two files of a kind change places: those of two shards, of two batches, of two streams."""

    def trial(world: World, dice: random.Random) -> Verdict:
        drawn = draw_image(world, dice, kind, twice=True)
        if drawn is None:
            return Verdict("skipped", f"no two files of kind {kind}")
        base, image = drawn
        one = choose_file(dice, image.files[kind])
        two = choose_file(dice, [path for path in image.files[kind] if path != one])
        live = world.stage(base, image.path)
        first, second = (live / one).read_bytes(), (live / two).read_bytes()
        if first == second:
            return Verdict("skipped", "both files are the same")
        (live / one).write_bytes(second)
        (live / two).write_bytes(first)
        what = f"{image.label}: {one} swapped with {two}"
        return restart(world, base, live, codes_of(kind), (*_linked(one), *_linked(two)), what)

    return trial


def replace_foreign(kind: str) -> Callable[[World, random.Random], Verdict]:
    """A file comes from another run of the same queries."""

    def trial(world: World, dice: random.Random) -> Verdict:
        drawn = draw_image(world, dice, kind)
        if drawn is None:
            return Verdict("skipped", f"no file of kind {kind}")
        base, image = drawn
        shared = [
            path
            for path in image.files[kind]
            if (base.twin / path).exists() and (base.twin / path).read_bytes() != (image.path / path).read_bytes()
        ]
        if not shared:
            return Verdict("skipped", "the other run has the same files")
        relative = choose_file(dice, shared)
        live = world.stage(base, image.path)
        shutil.copyfile(base.twin / relative, live / relative)
        allowed = codes_of(kind) | {"checkpoint-foreign", "script-changed"}
        names = _linked(relative)
        if kind == "identity":  # a sound identity, and results that are not its own
            allowed, names = allowed | RESULT_CODES, ()
        return restart(world, base, live, allowed, names, f"{image.label}: {relative} of another run")

    return trial


# ---- whole directories -----------------------------------------------------------------------------------------------

_CHECKPOINT: Final = "out/.strandline"


def _is_result(relative: str) -> bool:
    return relative.startswith("out/") and not relative.startswith(_CHECKPOINT)


def _replace_part(live: Path, source: Path, part: Callable[[str], bool]) -> None:
    for relative in [path for path in files_of(live) if part(path)]:
        (live / relative).unlink()
    for relative in [path for path in files_of(source) if part(path)]:
        (live / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / relative, live / relative)


def mix_moments(part: Callable[[str], bool], later: bool) -> Callable[[World, random.Random], Verdict]:
    """A part of the tree is that of an earlier (or later) moment of the same run: a backup of half of it."""

    def trial(world: World, dice: random.Random) -> Verdict:
        base = world.base(dice.choice(world.names))
        image = pick(dice, base.images)
        others = [i for i in base.images if (i.commits > image.commits if later else i.commits < image.commits)]
        if not others:
            return Verdict("skipped", "no other moment")
        other = pick(dice, others)
        live = world.stage(base, image.path)
        _replace_part(live, other.path, part)
        return restart(world, base, live, PART_CODES, (), f"batch {image.commits} with parts of batch {other.commits}")

    return trial


def remove_part(part: Callable[[str], bool]) -> Callable[[World, random.Random], Verdict]:
    """A part of the tree is gone."""

    def trial(world: World, dice: random.Random) -> Verdict:
        base = world.base(dice.choice(world.names))
        image = pick(dice, base.images)
        live = world.stage(base, image.path)
        gone = [relative for relative in files_of(live) if part(relative)]
        if not gone:
            return Verdict("skipped", "no such files")
        for relative in gone:
            (live / relative).unlink()
        return restart(world, base, live, PART_CODES, (), f"{image.label}: {gone[0]} … removed")

    return trial


def take_twin(part: Callable[[str], bool]) -> Callable[[World, random.Random], Verdict]:
    """A part of the tree comes from another run of the same queries."""

    def trial(world: World, dice: random.Random) -> Verdict:
        base = world.base(dice.choice(world.names))
        image = pick(dice, base.images)
        live = world.stage(base, image.path)
        _replace_part(live, base.twin, part)
        return restart(world, base, live, PART_CODES, (), f"{image.label}: parts of another run")

    return trial


def move_tree(world: World, dice: random.Random) -> Verdict:
    """Checkpoint and results in another directory, as restored from a backup: the run goes on."""
    names = [name for name in world.names if name not in ("events", "sqlite")]
    base = world.base(dice.choice(names))
    image = pick(dice, base.images)
    world.forget()
    moved = base.live.parent / f"moved-{dice.randrange(10**6)}"
    shutil.rmtree(base.live, ignore_errors=True)
    copy_tree(image.path, moved)
    try:
        return restart(world, base, moved, frozenset(), (), f"{image.label}: moved")
    finally:
        shutil.rmtree(moved, ignore_errors=True)


def rotate_token(world: World, dice: random.Random) -> Verdict:
    """The token of an http stream is another one than before: the run goes on."""
    if "http" not in world.names:
        return Verdict("skipped", "no http stream")
    base = world.base("http")
    image = pick(dice, base.images)
    live = world.stage(base, image.path)
    token[0] = f"other{dice.randrange(1000)}"
    try:
        return restart(world, base, live, frozenset(), (), f"{image.label}: another token")
    finally:
        token[0] = "first"


# ---- crashes ---------------------------------------------------------------------------------------------------------


def crash(which: Callable[[Image], bool]) -> Callable[[World, random.Random], Verdict]:
    """kill -9 of everything at a file operation: the restart must be exact."""

    def trial(world: World, dice: random.Random) -> Verdict:
        for name in dice.sample(world.names, len(world.names)):
            base = world.base(name)
            images = [image for image in base.images if which(image)]
            if images:
                image = pick(dice, images)
                live = world.stage(base, image.path)
                return restart(world, base, live, frozenset(), (), f"killed at {image.label}, batch {image.commits}")
        return Verdict("skipped", "no such operation")

    return trial


def crash_twice(world: World, dice: random.Random) -> Verdict:
    """A finished run starts again: nothing happens to its results."""
    base = world.base(dice.choice(world.names))
    live = world.stage(base, base.final)
    return restart(world, base, live, frozenset(), (), "started again after its end")


def stop_and_continue(world: World, dice: random.Random) -> Verdict:
    """A session that has run other queries before is stopped and continued while it runs one (a laptop that sleeps)."""
    base = world.base(dice.choice(world.names))
    image = pick(dice, base.images)
    live = world.stage(base, image.path)
    with world.paused():
        return restart(world, base, live, frozenset(), (), f"{image.label}: stopped and continued")


def cut_power(how: str) -> Callable[[World, random.Random], Verdict]:
    """What was written since the last commit is lost in part: any subset of those files is emptied, torn or gone."""

    def trial(world: World, dice: random.Random) -> Verdict:
        base = world.base(dice.choice(world.names))
        image = pick(dice, base.images)
        first = min((i for i in base.images if i.commits == image.commits), key=lambda i: i.path.name)
        recent = [
            relative
            for relative in files_of(image.path)
            if file_kind(relative) not in ("input", "lease", "database")
            and not _same(image.path / relative, first.path / relative)
        ]
        if not recent:
            return Verdict("skipped", "nothing was written since the last commit")
        live = world.stage(base, image.path)
        lost = dice.sample(recent, dice.randint(1, len(recent)))
        for relative in lost:
            DAMAGES[how](live / relative, dice)
        what = f"{image.label}, {how}: {', '.join(lost[:3])}"
        return restart(world, base, live, ALL_CODES, (), what)

    return trial


def cut_power_spark(kind: str) -> Callable[[World, random.Random], Verdict]:
    """The newest file of Spark's log is empty, since Spark does not sync it."""

    def trial(world: World, dice: random.Random) -> Verdict:
        drawn = draw_image(world, dice, kind)
        if drawn is None:
            return Verdict("skipped", f"no file of kind {kind}")
        base, image = drawn
        live = world.stage(base, image.path)
        newest = max(image.files[kind], key=lambda path: int(os.path.basename(path)))
        (live / newest).write_bytes(b"")
        return restart(world, base, live, ALL_CODES, _names(newest), f"{image.label}: {newest} empty")

    return trial


def _same(one: Path, two: Path) -> bool:
    return two.exists() and one.read_bytes() == two.read_bytes()
