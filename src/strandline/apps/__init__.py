"""Applications: the command line, the shell, notebooks, scenario tests, `verify`, benchmarks and the papers."""
