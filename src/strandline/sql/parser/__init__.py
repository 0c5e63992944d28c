"""From text to the syntax tree: recursive descent, by functions over the tokens of `sql/lexer.py`.

`statements.py` has the entry points. Expressions hold queries and queries hold expressions, so `expressions`, `calls`,
`queries` and `tables` import each other as modules and look functions up when they call them.

What belongs to SQL but not to the language is recognised and refused by name (`not-supported`), so that a user reads
what is missing rather than which comma was unexpected. To add such a feature, replace its refusal by a node.
"""
