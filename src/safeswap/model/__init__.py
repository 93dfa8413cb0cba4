"""Frozen values: what the data are, what is asked, what was done. No input or output."""
