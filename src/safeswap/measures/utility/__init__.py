"""Utility measures: how far a masked file is from the original."""
