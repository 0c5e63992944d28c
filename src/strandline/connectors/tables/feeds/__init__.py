"""Sources of tables: what brings rows of other systems into the log of a table, before they are used."""
