"""Python runs this in every process of an attacked run (`PYTHONPATH`): file operations below the run's directory can be
counted, photographed or made the last thing that the process does."""

import os

if os.environ.get("STRANDLINE_ATTACK"):
    import sys

    sys.path.insert(1, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    try:
        from attack.hook import install

        install()
    finally:
        del sys.path[1]
