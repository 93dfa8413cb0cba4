"""The DuckDB engine, for files larger than memory.

::

    engine   the engine: pairs by window functions, changes in record order
    store    a private database with a memory limit, removed afterwards; its tables, and checks of stored exchanges
"""
