"""The colours of the shell: those of the terminal, few of them."""

from __future__ import annotations

from typing import Final

from prompt_toolkit.styles import Style

STYLE: Final = Style.from_dict(
    {
        "prompt": "ansicyan bold",
        "continuation": "ansibrightblack",
        "keyword": "ansiblue bold",
        "function": "ansicyan",
        "text": "ansigreen",
        "number": "ansimagenta",
        "comment": "ansibrightblack",
        "command": "ansiyellow",
        "bottom-toolbar": "noreverse bg:ansibrightblack fg:ansiwhite",
        "completion-menu.completion": "bg:ansibrightblack fg:ansiwhite",
        "completion-menu.completion.current": "bg:ansicyan fg:ansiblack",
        "completion-menu.meta.completion": "bg:ansibrightblack fg:ansigray",
        "completion-menu.meta.completion.current": "bg:ansicyan fg:ansiblack",
    }
)
