"""Risk measures: what an intruder could still learn from a masked file, one file per measure."""
