"""Pipelines: maskings by any methods, one after another, as one job."""
