"""The user's pager, for output that is longer than the terminal."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess


def run_pager(text: str) -> bool:
    """Show a text in `$PAGER`, or else in less; false if there is none, or the user wants none."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    if not command or command[0] == "cat" or shutil.which(command[0]) is None:
        return False
    # Colours stay, and so does the text on the screen afterwards; what fits is only printed.
    environment = {"LESS": "FRX", **os.environ}
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, text=True)
        # Ctrl-C belongs to the pager, and a reader may leave before the end.
        while True:
            try:
                pager.communicate(text)
                return True
            except KeyboardInterrupt:
                text = ""
    except OSError:
        return False
