"""Windows that were not written, and follow from a SELECT: from its conditions on times, or from its GROUP BY."""

from __future__ import annotations

from strandline.sql import ast
from strandline.sql.binder.interval_joins import with_join_windows
from strandline.sql.binder.names import Names
from strandline.sql.binder.time_groups import with_group_window


def with_derived_windows(select: ast.Select, names: Names) -> ast.Select:
    """The SELECT with these windows; `names` remembers them."""
    return with_group_window(with_join_windows(select, names), names)
