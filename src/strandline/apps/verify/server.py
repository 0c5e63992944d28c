"""A PostgreSQL server for the length of a check: a cluster in a temporary directory, reached by a socket in it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from strandline.core.errors import SetupError

_PLACES: Final = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/pgsql/bin",
    "/opt/homebrew/opt/postgresql*/bin",
)


def installed() -> Path | None:
    """The directory with the newest server programs of this machine, if there are any."""
    initdb = shutil.which("initdb")
    if initdb is not None:
        return Path(initdb).resolve().parent
    places = [directory for pattern in _PLACES for directory in Path("/").glob(pattern.lstrip("/"))]
    usable = [directory for directory in places if (directory / "initdb").exists()]
    return max(usable, key=_version, default=None)


def _version(directory: Path) -> int:
    return int("".join(filter(str.isdigit, directory.parent.name)) or 0)


@contextmanager
def temporary_server() -> Iterator[str]:
    """A server of our own; gives its connection string."""
    programs = installed()
    if programs is None:
        raise SetupError(
            "no PostgreSQL server is installed here",
            code="no-judge",
            hint="Install one (Debian: apt install postgresql), or name a running one with --dsn.",
        )
    owner = _owner()
    with tempfile.TemporaryDirectory(prefix="strandline-pg-") as directory:
        if owner is not None:
            shutil.chown(directory, owner)
        data = f"{directory}/data"
        _run([programs / "initdb", "-D", data, "-A", "trust", "-U", "judge", "-E", "UTF8", "--locale=C", "-N"], owner)
        # A throw-away cluster: nothing needs to survive a crash, and all connections use the socket.
        options = f"-k {directory} -c listen_addresses='' -c fsync=off -c shared_buffers=32MB"
        log = f"{directory}/log"
        try:
            _run([programs / "pg_ctl", "-D", data, "-l", log, "-w", "-s", "-o", options, "start"], owner)
            yield f"host={directory} user=judge dbname=postgres"
        finally:
            if Path(data, "postmaster.pid").exists():  # also if the start was interrupted
                _run([programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "-s", "stop"], owner)


def _owner() -> str | None:
    """User of the server: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return None
    users = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in users), None)


def _run(command: list[Any], owner: str | None) -> None:
    done = subprocess.run(
        list(map(str, command)),
        user=owner,
        cwd="/",
        start_new_session=True,  # Ctrl-C of the terminal is for us; we stop the server
        stdin=subprocess.DEVNULL,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SetupError(
            f"{Path(command[0]).name} failed",
            code="no-judge",
            detail=done.stdout.strip()[-500:],
            hint="Name a running server with --dsn.",
        )
