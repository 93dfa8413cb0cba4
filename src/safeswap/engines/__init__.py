"""Engines: where records are counted, sorted and exchanged.

::

    base            the protocol of all engines; repair of a shortfall, decided on counts
    memory          the reference: NumPy columns and compiled kernels
    duckdb/         files larger than memory
    spark/          files on a cluster
    stream          records read in batches, coded by levels
    identity        identifiers as blocks for keyed draws
    spilled_cells   cells counted out of memory

Guarantee: a record's draw is a pure function of the derived key and its identifier, so results do not depend on
threads, partitions, retries or engine.
"""
