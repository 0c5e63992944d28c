"""The syntax tree: what the user wrote, before names and types are resolved.

Two nodes are equal if they say the same thing: the place in the text (`span`) is not part of their identity.
"""
# ruff: noqa: F403 (the modules declare nodes and little else, and all of them are `ast.Name` to readers)

from strandline.sql.ast.connectors import *
from strandline.sql.ast.expressions import *
from strandline.sql.ast.nodes import *
from strandline.sql.ast.queries import *
from strandline.sql.ast.statements import *
from strandline.sql.ast.tables import *
