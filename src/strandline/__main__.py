"""`python -m strandline`."""

import os
import sys

# `python -m` puts the working directory before the standard library: a `json.py` that lies there would be executed.
if not sys.flags.safe_path and sys.path and sys.path[0] in ("", os.getcwd()):
    del sys.path[0]

from strandline.apps.cli import main

main()
