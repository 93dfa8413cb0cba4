"""Engines: where the records are and how they are moved."""
