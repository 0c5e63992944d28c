"""`python -m strandline`."""

from strandline.cli import main

main()
