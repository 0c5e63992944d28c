"""The shell: a prompt that is there at once, and answers that are looked at while they grow.

`loop` reads what the user types, `session` runs it, `verbs` are the dot commands, `tail` shows an answer live.
"""
