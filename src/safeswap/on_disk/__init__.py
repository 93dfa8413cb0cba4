"""Mask, compare and count Parquet files on any engine, without holding them whole.

::

    run              the one runner: draw, write, verify, record, whatever the method and the engine
    job              a job; the engines by name, what each offers, and the refusal of what it lacks
    memory           files on the memory engine
    duckdb           files on DuckDB
    spark            files on Spark
    value_changes    files whose values a method changes record by record
    cells            two files compared by counts of cells
    masking          a masking saved between two commands
    audit_record     the confidential record of a release

Guarantee: the masked files and their record are both written or neither, and the output is read back from disk and
verified against the promises of the method before it gets its name.
"""
