"""The papers' worked examples and experiments, computed by the code that the engine uses: `strandline papers`."""
