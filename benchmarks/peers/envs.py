"""An environment per peer, made once from its pinned requirements; what is in this one already runs here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


class NotInstallable(Exception):
    """The environment of a peer could not be made; the message is pip's last word."""


def python_of(engine: str) -> str:
    """The interpreter that runs an engine; its environment is made if it is missing or its requirements changed."""
    wanted = HERE / engine / "requirements.txt"
    if not wanted.exists():
        return sys.executable
    place = HERE / ".envs" / engine
    python, stamp = place / "bin" / "python", place / "installed.txt"
    if stamp.exists() and stamp.read_text() == wanted.read_text():
        return str(python)
    print(f"{engine}: making its environment from {wanted.relative_to(HERE)}", flush=True)
    try:
        _run([sys.executable, "-m", "venv", str(place)])
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(wanted)])
    except subprocess.CalledProcessError as problem:
        said = [line for line in (problem.stderr or "").splitlines() if line.startswith("ERROR")]
        raise NotInstallable(said[-1] if said else "its environment could not be made") from None
    stamp.write_text(wanted.read_text())
    return str(python)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
