"""Directory trees of a run: which kind of file is which, copies, digests, and damage."""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeAlias

# The kinds of files in a tree, by patterns over the path relative to it; the first that fits decides. Names of this
# layout and of the one before: a kind that a version does not write has no trials.
_KINDS: Final[tuple[tuple[str, str], ...]] = (
    (r"^in/", "input"),
    (r"(^|/)\.[^/]*\.(tmp|crc)$|\.tmp$|/\.[^/]+$|/staging/|new-[0-9a-f]+", "temporary"),
    (r"/spark/metadata$", "spark-metadata"),
    (r"/spark/offsets/\d+$", "offset"),
    (r"/spark/commits/\d+$", "commit"),
    (r"/batches/", "batch-record"),
    (r"/state/.*/v\d+[^/]*\.json$", "state-manifest"),
    (r"/state/.*\.arrow$", "state-segment"),
    (r"/queries\.json$", "identity"),
    (r"/graph/v\d+\.json$", "graph-version"),
    (r"/flow\.json$", "flow"),
    (r"/progress\.json$", "progress"),
    (r"/(lock|lease\.json)$", "lease"),
    (r"/delivered\.log$", "delivered-log"),
    (r"/replay/", "replay"),
    (r"/sources/[^/]+/heartbeat[^/]*$", "heartbeat"),
    (r"/sources/[^/]+/units[^/]*$", "unit-log"),
    (r"/received/[^/]*head[^/]*$", "received-head"),
    (r"/received/", "received"),
    (r"/sources/[^/]+/(offsets|rounds)[^/]*(/[^/]*)?$", "kafka-offsets"),
    (r"/events/[^/]+/[^/]*head[^/]*$", "journal-head"),
    (r"/events/", "journal"),
    (r"/tables/[^/]+/head$", "table-head"),
    (r"/tables/[^/]+/\d+\.(log|base)$", "table-log"),
    (r"/tables/[^/]+/table\.json$", "table-declaration"),
    (r"(^|/)_late/", "late-rows"),
    (r"(^|/)_rejected/", "rejected-rows"),
    (r"(^|/)_strandline\.json$", "results-owner"),
    (r"\.parquet$", "results"),
    (r"learned", "learned"),
    (r"\.sqlite-\w+$", "temporary"),
    (r"\.sqlite$", "database"),
)
FILE_KINDS: Final = tuple(dict.fromkeys(kind for _, kind in _KINDS))
_PATTERNS: Final = tuple((re.compile(pattern), kind) for pattern, kind in _KINDS)

# Files that may differ after a refusal: who holds the checkpoint. What is temporary may be gone, too.
_MAY_CHANGE: Final = re.compile(r"(^|/)(lock|lease\.json|[^/]*\.lock)$")


def file_kind(relative: str) -> str:
    """The kind of a file in a tree."""
    for pattern, kind in _PATTERNS:
        if pattern.search(relative):
            return kind
    return "other"


def files_of(root: Path) -> Iterator[str]:
    """The files below a directory, by their relative paths, in order."""
    for directory, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            yield os.path.relpath(os.path.join(directory, name), root)


def copy_tree(source: Path, target: Path) -> None:
    """Make `target` a copy of `source`; a file that vanishes meanwhile is not in it."""
    for directory, _, names in os.walk(source):
        own = os.path.join(target, os.path.relpath(directory, source))
        os.makedirs(own, exist_ok=True)
        for name in names:
            try:
                shutil.copyfile(os.path.join(directory, name), os.path.join(own, name))
            except FileNotFoundError:
                continue


def digest(root: Path) -> dict[str, str]:
    """The digests of all files below a directory that must not change."""
    digests = {}
    for relative in files_of(root):
        if not _MAY_CHANGE.search(relative) and file_kind(relative) != "temporary":
            digests[relative] = hashlib.blake2b((root / relative).read_bytes(), digest_size=12).hexdigest()
    return digests


def without_new_tables(before: dict[str, str], after: dict[str, str]) -> dict[str, str]:
    """A digest without tables of which nothing was there before: statements that create them run before the queries of
    a script start, whether these are refused or not."""
    existing = {path.rpartition("/")[0] for path in before if file_kind(path).startswith("table-")}
    return {
        path: value
        for path, value in after.items()
        if not file_kind(path).startswith("table-") or path.rpartition("/")[0] in existing
    }


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What differs between two digests, in words."""
    gone = [f"-{path}" for path in before.keys() - after.keys()]
    added = [f"+{path}" for path in after.keys() - before.keys()]
    altered = [f"~{path}" for path in before.keys() & after.keys() if before[path] != after[path]]
    return sorted(gone + added + altered)


# ---- damage to one file ----------------------------------------------------------------------------------------------

# Changes a file in place; False where it cannot be damaged so (nothing to truncate, no digit in it).
Damage: TypeAlias = Callable[[Path, random.Random], bool]


def delete(path: Path, dice: random.Random) -> bool:
    path.unlink()
    return True


def empty(path: Path, dice: random.Random) -> bool:
    return _rewrite(path, b"")


def truncate(path: Path, dice: random.Random) -> bool:
    data = path.read_bytes()
    return len(data) > 1 and _rewrite(path, data[: dice.randrange(1, len(data))])


def flip_bit(path: Path, dice: random.Random) -> bool:
    data = bytearray(path.read_bytes())
    if not data:
        return False
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return _rewrite(path, bytes(data))


def change_digit(path: Path, dice: random.Random) -> bool:
    """Another digit in a text file: what a careless editor does."""
    data = bytearray(path.read_bytes())
    if b"\0" in data:
        return False
    digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
    if not digits:
        return False
    position = dice.choice(digits)
    data[position] = dice.choice([d for d in b"0123456789" if d != data[position]])
    return _rewrite(path, bytes(data))


def double_line(path: Path, dice: random.Random) -> bool:
    """The last line twice."""
    data = path.read_bytes()
    if b"\0" in data or not data.strip():
        return False
    whole = data if data.endswith(b"\n") else data + b"\n"
    last = whole.rstrip(b"\n").rsplit(b"\n", 1)[-1] + b"\n"
    return _rewrite(path, whole + last)


def drop_line(path: Path, dice: random.Random) -> bool:
    """One line of several is gone."""
    lines = path.read_bytes().splitlines(keepends=True)
    if len(lines) < 2 or any(b"\0" in line for line in lines):
        return False
    del lines[dice.randrange(len(lines))]
    return _rewrite(path, b"".join(lines))


def double(path: Path, dice: random.Random) -> bool:
    data = path.read_bytes()
    return bool(data) and _rewrite(path, data + data)


def append_junk(path: Path, dice: random.Random) -> bool:
    return _rewrite(path, path.read_bytes() + dice.randbytes(dice.randrange(1, 40)))


def fill_zeros(path: Path, dice: random.Random) -> bool:
    """The length is right, the end is zeros: what some file systems leave after a power cut."""
    data = path.read_bytes()
    if not data:
        return False
    keep = dice.randrange(len(data))
    changed = data[:keep] + bytes(len(data) - keep)
    return changed != data and _rewrite(path, changed)


def _rewrite(path: Path, data: bytes) -> bool:
    """Replace the file: a mapping of the old one, which a worker may have, must not see the change."""
    path.unlink()
    path.write_bytes(data)
    return True


DAMAGES: Final[dict[str, Damage]] = {
    "deleted": delete,
    "emptied": empty,
    "truncated": truncate,
    "bit-flipped": flip_bit,
    "digit-changed": change_digit,
    "line-doubled": double_line,
    "line-lost": drop_line,
    "doubled": double,
    "junk-appended": append_junk,
    "zeroed": fill_zeros,
}
