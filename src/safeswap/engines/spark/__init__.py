"""The Spark engine, for files on a cluster.

::

    engine    the engine: counts by group-by, pairs by numbering, exchange by joins
    draws     keyed draws in the workers
    checks    checks and counts as sums over records
    session   a session and a Java runtime, where there is none
"""
