"""The Spark engine, for files on a cluster.

::

    engine    the engine: counts, pairs by numbering
    reading   pieces of the files, and how workers read them
    draws     keyed draws, codes and counts in the workers
    exchange  workers exchange, write and compare values
    checks    cells of two files counted for measures
    session   a session and a Java runtime, where there is none
"""
