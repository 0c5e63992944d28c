"""Order of work that is put off: of a join that several windows share, and of fragments."""
