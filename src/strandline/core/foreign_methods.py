"""Methods that a result has in DuckDB, Spark, pandas or Polars, and what is written here: hints of AttributeErrors."""

from __future__ import annotations

from typing import Final, NoReturn

_ROWS: Final = "results().to_pylist()"
METHODS: Final[dict[str, str]] = {
    **dict.fromkeys(("pl", "to_polars", "polars"), 'results("polars")'),
    **dict.fromkeys(("df", "to_df", "fetchdf", "fetch_df", "to_pandas", "toPandas", "pandas"), 'results("pandas")'),
    **dict.fromkeys(("arrow", "to_arrow", "to_arrow_table", "fetch_arrow_table", "toArrow"), "results()"),
    **dict.fromkeys(("fetchall", "fetchone", "fetchmany", "collect", "to_pylist", "rows"), _ROWS),
    **dict.fromkeys(("show", "display", "head", "print"), 'results("pandas")'),
}


def refuse_foreign_method(owner: object, name: str) -> NoReturn:
    """Refuse an attribute that does not exist, with the method to call in its place if other libraries have it."""
    kind = type(owner).__name__
    if (call := METHODS.get(name)) is not None:
        message = f"a {kind} has no {name}(): write .{call}"
    else:
        message = f"{kind!r} object has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=owner)
