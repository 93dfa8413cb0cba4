"""The engine that keeps records in DuckDB, under a memory limit."""
