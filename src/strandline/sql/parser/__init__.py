"""From text to the syntax tree: recursive descent over the tokens of `sql/lexer.py`."""
