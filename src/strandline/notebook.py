"""`%load_ext strandline.notebook`: the %%sql magic and the live widgets of `apps/notebook`."""

from __future__ import annotations

from strandline.apps.notebook import LiveChart, LiveTable, load_ipython_extension

__all__ = ["LiveChart", "LiveTable", "load_ipython_extension"]
