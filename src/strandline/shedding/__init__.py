"""Load shedding: which rows to drop when the input exceeds the capacity."""
