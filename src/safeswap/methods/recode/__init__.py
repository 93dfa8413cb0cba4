"""Recoding: replace values by coarser ones, step by step."""
