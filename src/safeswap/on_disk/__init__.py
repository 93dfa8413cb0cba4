"""Mask, compare and count Parquet files on any engine, without holding them whole.

::

    run              the runner: draw, rewrite, verify, record; used by memory and DuckDB
    memory           exchanges on the memory engine, on top of held_exchanges
    held_exchanges   exchanges with only the relevant columns in memory
    duckdb           exchanges on DuckDB
    spark            the runner and exchanges on Spark
    capabilities     what each engine can do, and the refusal of everything else
    cells            two files compared by counts of cells
    counted_cells    the counting (compiled)
    masking          a masking saved between two commands
    audit_record     the confidential record of a release

Guarantee: the masked files and their record are both written or neither, and the output is read back from disk and
verified against the promises of the method before it gets its name.
"""
