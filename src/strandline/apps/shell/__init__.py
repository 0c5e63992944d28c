"""Interactive shell: an immediate prompt, and live results.

`loop` reads input, `session` runs it, `commands` are the dot commands, `tail` shows a result live.
"""
