"""File tracking: the files of a pattern, and what became of them: grown, renamed, truncated, replaced, removed.

Without `follow` the files are those of one listing. With it the directory is polled, and only differences are examined:
a new name, inode, size or time of change. Files are identified by their inodes and by their content before the read
position.
"""

from __future__ import annotations

import contextlib
import difflib
import fnmatch
import glob
import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from strandline.connectors.sources.files.content import fingerprint
from strandline.connectors.sources.files.planning import PLAN_ERRORS, FileOptions, IncompleteFile, InputFile, plan_file
from strandline.connectors.sources.files.units import FileUnit, ListedFile
from strandline.core.errors import SourceError, Span
from strandline.core.security.allow import Allow, FilePath, first_wildcard

SETTLE_SECONDS = 2.0
LOOKS_SHARE: Final = 0.1  # of the time that is spent on listing a directory
LONGEST_PAUSE: Final = 2.0  # seconds between two polls


def static_base(pattern: str) -> str:
    """The directory before the first wildcard."""
    return os.path.dirname(pattern[: first_wildcard(pattern)])


def missing_directory(directory: str, span: Span | None) -> SourceError:
    hint = f"Paths are relative to {os.getcwd()}."
    return SourceError(f"the directory {directory} does not exist", code="missing-file", hint=hint, span=span)


def missing_file(pattern: str, allow: Allow | None, span: Span | None) -> SourceError:
    """No file matches: the nearest names of the directory are named, unless it may be one that is not allowed."""
    names: list[str] = []
    if allow is None:
        with contextlib.suppress(OSError):
            names = [name for name in os.listdir(static_base(pattern) or ".") if name[0] not in "._"]
    stems = {os.path.splitext(name)[0]: name for name in names}
    near = difflib.get_close_matches(os.path.splitext(os.path.basename(pattern))[0], stems, n=1)
    hint = "Use follow => true for a directory that fills up later."
    if near:
        hint = f"Did you mean '{os.path.join(static_base(pattern), stems[near[0]])}'?"
    elif names and first_wildcard(pattern) == len(pattern):
        listed = ", ".join(sorted(names)[:8])
        hint = f"The directory has {listed}{' and others' if len(names) > 8 else ''}."
    return SourceError(f"no file matches {pattern}", code="missing-file", hint=hint, span=span)


class FollowedDirectory:
    """The files that match a pattern, by their paths from the directory before its first wildcard on."""

    def __init__(self, pattern: str, options: FileOptions, allow: Allow | None = None) -> None:
        self.pattern = pattern
        self.allow = allow  # links may lead out of the allowed directories
        self.base = static_base(pattern)
        self.wildcards = os.path.relpath(pattern, self.base) if self.base else pattern
        self.options = options
        self._matches = re.compile(fnmatch.translate(self.wildcards)).match if os.sep not in self.wildcards else None

    def full(self, path: str) -> str:
        return os.path.join(self.base, path)

    def list_files(self) -> list[ListedFile]:
        """The files that are there now, by their paths. One that vanishes meanwhile is not."""
        files = sorted(self._matching(), key=lambda file: file.path)
        if self.allow is not None:
            self.allow.check("file", False, (FilePath(self.full(file.path)) for file in files), None)
        return files

    def _matching(self) -> list[ListedFile]:
        if self._matches is None:
            paths = glob.iglob(self.pattern, recursive=True)
            listed_files = (_listed(os.path.relpath(path, self.base or "."), path) for path in paths)
            return [file for file in listed_files if file is not None and self._counts(file)]
        files: list[ListedFile] = []
        try:
            with os.scandir(self.base or ".") as entries:
                for entry in entries:
                    if self._matches(entry.name) and (file := _listed(entry.name, entry)) and self._counts(file):
                        files.append(file)
        except (FileNotFoundError, NotADirectoryError):
            raise missing_directory(self.base or ".", None) from None
        return files

    def _counts(self, file: ListedFile) -> bool:
        name = os.path.basename(file.path)
        if not name or name[0] in "._" or name.endswith(".tmp"):
            return False
        return file.size != _DIRECTORY or replace(self.options, format=None).kind_of(name) is not None

    def named_by_inode(self, path: str, inode: int) -> str | None:
        """The path, in the same directory, of a file that has lost its name."""
        directory = os.path.dirname(path)
        try:
            with os.scandir(self.full(directory) or ".") as entries:
                for entry in entries:
                    if entry.inode() == inode and not entry.is_symlink():
                        return os.path.join(directory, entry.name)
        except OSError:
            pass
        return None


_DIRECTORY: Final = -2
_UNREADABLE: Final = -1


def _listed(path: str, where: str | os.DirEntry[str]) -> ListedFile | None:
    try:
        status = where.stat() if isinstance(where, os.DirEntry) else os.stat(where)
    except OSError:
        # A broken link is listed, a vanished file is not.
        try:
            link = os.lstat(where)
        except OSError:
            return None
        return ListedFile(path, link.st_ino, _UNREADABLE, link.st_mtime_ns)
    size = _DIRECTORY if stat.S_ISDIR(status.st_mode) else status.st_size
    return ListedFile(path, status.st_ino, size, status.st_mtime_ns)


class FileTracker:
    """Tracked files of a stream on the driver: the planned part of each, and what is to be planned next."""

    def __init__(self, folder: FollowedDirectory, end_marker: str) -> None:
        self.folder = folder
        self.options = folder.options
        self.end_marker = end_marker
        self.is_complete = False  # everything that will ever come has been planned
        self._files: dict[str, InputFile] = {}  # by the path at which each lies now
        self._by_inode: dict[int, InputFile] = {}
        self._previous: dict[str, ListedFile] = {}
        self._queue: deque[InputFile] = deque()
        self._waiting: list[InputFile] = []
        self._notices: list[FileUnit] = []  # entries about files that changed
        self._ending = not self.options.follow
        self._next_look = 0.0

    @property
    def bytes_left(self) -> int:
        """About how much was found and is not planned."""
        return sum(max(0, file.size - file.offset) for file in self._queue)

    # After a restart.

    def restore(self, units: Iterable[FileUnit], listing: Iterable[ListedFile] | None) -> None:
        """Restore the tracked files from the units of a log."""
        for unit in units:
            self._file_of(unit).take_over(unit)
        if listing is not None:
            self.begin(listing)
            return
        for file in self._files.values():
            planned = file.is_done or file.is_rejected or (file.grows and file.offset == file.size)
            if planned:
                self._previous[file.path] = ListedFile(file.path, file.inode, file.size, file.changed)

    def _file_of(self, unit: FileUnit) -> InputFile:
        tracked = self._files.get(unit.path)
        if tracked is not None and tracked.inode == unit.inode:
            return tracked
        moved = self._by_inode.get(unit.inode)
        if moved is not None and (moved.offset, moved.row) == (unit.begin, unit.row) and moved.offset:
            self._move(moved, unit.path)
            return moved
        return self._add(InputFile(unit.path, unit.inode))

    def _add(self, file: InputFile) -> InputFile:
        self._files[file.path] = file
        self._by_inode[file.inode] = file
        return file

    def _move(self, file: InputFile, path: str) -> None:
        if self._files.get(file.path) is file:
            del self._files[file.path]
        file.path = path
        file.units = None
        self._files[path] = file

    def _enqueue(self, file: InputFile) -> None:
        if not file.is_queued:
            file.is_queued = True
            self._queue.append(file)

    # Without follow: one listing.

    def begin(self, listing: Iterable[ListedFile]) -> None:
        """Queue the files of the listing with which the reading began."""
        for listed in listing:
            file = self._files.get(listed.path) or self._add(InputFile(listed.path))
            file.inode, file.size, file.changed = listed.inode, listed.size, listed.changed
            if not file.is_done:
                self._enqueue(file)

    # With follow: polling.

    def poll(self) -> None:
        """Find changes since the last poll, unless that was just now."""
        now = time.monotonic()
        if now < self._next_look or self.is_complete:
            return
        # The marker first: a file that comes after this poll belongs to the next one.
        marked = os.path.exists(self.folder.full(self.end_marker))
        try:
            current = {file.path: file for file in self.folder.list_files()}
        except OSError:
            return  # the directory is not there for the moment
        self._compare(current, now)
        self._previous = current
        self._ending = self._ending or marked
        self._queue_tails(now)
        for file in self._waiting:
            self._enqueue(file)
        self._waiting.clear()
        took = time.monotonic() - now
        self._next_look = now + min(LONGEST_PAUSE, took / LOOKS_SHARE)

    def _compare(self, current: dict[str, ListedFile], now: float) -> None:
        previous = self._previous
        inodes = {file.inode for file in current.values()}
        lost = [path for path in previous if path not in current]
        fresh = [file for path, file in current.items() if previous.get(path) != file]
        # Renamed files come first: their rest is older.
        for path in lost:
            tracked = self._files.get(path)
            if tracked is not None and tracked.inode not in inodes:
                self._lost_name(tracked, now)
        arrived: list[InputFile] = []
        for listed in fresh:
            tracked = self._files.get(listed.path)
            if tracked is not None and (tracked.inode == listed.inode or self._has_content_of(tracked, listed)):
                self._changed(tracked, listed, now)
                continue
            if tracked is not None:
                self._lost_name(tracked, now)
            moved = self._by_inode.get(listed.inode)
            if moved is not None and self._is_renamed(moved, listed, current):
                self._move(moved, listed.path)
                moved.is_rotated = True
                self._changed(moved, listed, now)
            else:
                file = InputFile(listed.path, listed.inode, listed.size, listed.changed, since=now)
                arrived.append(self._add(file))
        for path in lost:
            tracked = self._files.get(path)
            if tracked is not None and path not in current:
                self._lost_name(tracked, now)
        for file in [file for file in self._files.values() if file.is_rotated and file.path not in current]:
            self._look_at_rotated(file, now)
        for file in arrived:
            self._enqueue(file)

    def _look_at_rotated(self, file: InputFile, now: float) -> None:
        """A file whose new name does not match the pattern; its writer may still append to it."""
        listed = _listed(file.path, self.folder.full(file.path))
        if listed is None or listed.inode != file.inode:
            self._lost_name(file, now)
        elif (listed.size, listed.changed) != (file.size, file.changed):
            self._changed(file, listed, now)

    def _is_renamed(self, tracked: InputFile, listed: ListedFile, current: dict[str, ListedFile]) -> bool:
        """True if a tracked file has another name now. Inodes are reused, so the content that was read must match as
        well; a file with two names is two files."""
        holder = current.get(tracked.path)
        if holder is not None and holder.inode == tracked.inode:
            return False
        return self._has_content_of(tracked, listed)

    def _has_content_of(self, tracked: InputFile, listed: ListedFile) -> bool:
        """True if a file has the content that was read of a tracked one."""
        if tracked.is_rejected or not tracked.offset:
            return False
        path = self.folder.full(listed.path)
        if tracked.grows:
            return listed.size >= tracked.offset and fingerprint(path, tracked.offset) == tracked.mark
        if (listed.size, listed.changed) == (tracked.size, tracked.changed):
            return True
        return listed.size == tracked.size and tracked.is_alike(path)

    def _lost_name(self, file: InputFile, now: float) -> None:
        """A file lies no longer where it was: it has been renamed, and its rest is read under the new name; or it is
        gone, and what was not read of it is lost."""
        self._files.pop(file.path, None)
        path = self.folder.named_by_inode(file.path, file.inode)
        if path is not None and path not in self._files and not file.is_rejected:
            listed = _listed(path, self.folder.full(path))
            if listed is not None and (not file.offset or self._has_content_of(file, listed)):
                self._move(file, path)
                file.is_rotated = True
                self._changed(file, listed, now)
                return
        file.units = None
        if file.is_queued:
            self._queue.remove(file)
            file.is_queued = False
        if self._by_inode.get(file.inode) is file:
            del self._by_inode[file.inode]
        unread = file.size - file.offset if file.grows else 0
        if file.is_done or file.is_rejected or (file.offset and unread <= 0) or (not file.offset and file.size <= 0):
            return
        what = f"its last {unread:,} bytes were" if file.offset and file.grows else "it was"
        self._notices.append(file.problem(f"the file was removed or replaced before {what} read"))

    def _changed(self, file: InputFile, listed: ListedFile, now: float) -> None:
        """Handle a tracked file with another size or time of change, or its first examination in this run."""
        was = (file.size, file.changed)
        file.inode, file.size, file.changed, file.since = listed.inode, listed.size, listed.changed, now
        self._by_inode[file.inode] = file
        path = self.folder.full(file.path)
        if file.is_rejected and was != (file.size, file.changed):
            file.is_rejected = False
            file.start_over()
            self._enqueue(file)
        elif file.is_rejected:
            return
        elif not file.offset:
            self._enqueue(file)
        elif not file.grows:
            if was == (file.size, file.changed) or (file.size == was[0] and file.is_alike(path)):
                if not file.is_done:
                    self._enqueue(file)
            elif file.is_done:
                self._notices.append(file.problem("the file was changed after it was read; it is not read again"))
            else:
                file.units, file.is_done = None, True
                problem = f"the file was changed after {file.row - 1:,} rows were read; the rest is not read"
                self._notices.append(file.problem(problem))
        elif file.size < file.offset:
            self._notices.append(self._cut_off(file))
            self._enqueue(file)
        elif was != (file.size, file.changed) and fingerprint(path, file.offset) != file.mark:
            self._notices.append(self._changed_before(file))
        elif file.size > file.offset:
            file.is_done = False
            self._enqueue(file)

    def _cut_off(self, file: InputFile) -> FileUnit:
        """A file that is shorter than its read part starts again."""
        read = file.offset
        file.start_over()
        problem = (
            f"the file was truncated to {file.size:,} bytes after {read:,} were read: it is read from its start, "
            "and rows appended before that may be lost"
        )
        return file.problem(problem, last=False)

    def _changed_before(self, file: InputFile) -> FileUnit:
        """A file with other content before the read position continues at its present end."""
        read, file.units = file.offset, None
        file.offset, file.is_done = file.size, False
        file.mark = fingerprint(self.folder.full(file.path), file.offset) or 0
        problem = (
            f"the file was changed before byte {read:,}, up to which it was read: what it has now, up to byte "
            f"{file.size:,}, is not read"
        )
        return replace(file.problem(problem, last=False), mark=file.mark)

    def _queue_tails(self, now: float) -> None:
        """Files whose last line was incomplete, and are no longer waited for."""
        for file in self._files.values():
            has_tail = file.grows and not file.is_rejected and not file.is_done and file.size > file.offset
            if has_tail and (self._ending or (file.is_rotated and now - file.since >= SETTLE_SECONDS)):
                self._enqueue(file)

    # Planning.

    def plan(self, rows: int) -> list[FileUnit]:
        """The next units, of about this many rows; nothing is read beyond that."""
        units, self._notices = self._notices, []
        planned = 0
        while self._queue and planned < rows:
            file = self._queue[0]
            unit = self._next_unit(file)
            if unit is not None:
                file.take_over(unit)
                units.append(unit)
                planned += max(unit.rows, 1)
                if not unit.last:
                    continue
            self._queue.popleft()
            file.is_queued, file.units = False, None
            if not self.options.follow:
                file.is_done = True
        self.is_complete = self._ending and not self._queue and not self._waiting
        return units

    def _next_unit(self, file: InputFile) -> FileUnit | None:
        """The next unit of a file, or one that represents an unreadable file; None if nothing is left for now."""
        settled = self._ending or time.monotonic() - file.since >= SETTLE_SECONDS
        try:
            if file.units is None:
                problem = None if self.options.follow else self._difference(file)
                if problem is not None:
                    file.units = iter(())
                    return file.problem(problem)
                final = self._ending or (file.is_rotated and settled)
                file.units = plan_file(file, self.folder.full(file.path), self.options, final, settled)
            return next(file.units, None)
        except FileNotFoundError as error:
            if self.options.follow and file.size != _UNREADABLE:
                return None  # the next poll finds it under another name, or reports it as removed
            return self._unreadable(file, error, settled)
        except PLAN_ERRORS as error:
            return self._unreadable(file, error, settled and not isinstance(error, IncompleteFile))

    def _unreadable(self, file: InputFile, error: BaseException, settled: bool) -> FileUnit | None:
        """A file that may still be written waits; one that does not change is rejected."""
        if not settled:
            self._waiting.append(file)
            return None
        file.units = iter(())
        what = self.options.kind_of(file.path)
        message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return file.problem(f"the file cannot be read as {what}: {message}"[:1_000], self._raw(file), whole=True)

    def _raw(self, file: InputFile) -> bytes:
        try:
            with open(self.folder.full(file.path), "rb") as opened:
                return opened.read(1_000)
        except OSError:
            return b""

    def _difference(self, file: InputFile) -> str | None:
        """Change of a file between the listing and its reading; None if it may be read."""
        try:
            status = os.stat(self.folder.full(file.path))
        except OSError as error:
            return f"the file is no longer readable: {error.strerror}" if file.size != _UNREADABLE else None
        if file.size < 0:
            return None
        if status.st_size < file.size:
            return f"the file has shrunk from {file.size:,} to {status.st_size:,} bytes before it was read"
        # One of the same name and size may come from a copy of the whole directory; its content is pinned when planned.
        same = status.st_ino == file.inode or status.st_size == file.size
        return None if same else "the file was replaced by another before it was read"
