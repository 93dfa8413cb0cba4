"""Pipelines: maskings of any methods, one after the other, as one job."""
