"""SAFE on records: change the fewest records so that every table is safe.

::

    method   the method: plan, apply, promises, facts
    setup    cells counted, and the few records that may have to move
    state    those records, the counts of every table, and lines of neighbouring cells (compiled)
    moves    ways out of small cells (compiled), and a lower bound of the number of changes
    search   passes of moves, then improvement by large neighbourhood search
    joint    an integer programme that proves the fewest records, for small files

Sources: Moore 1996, section V; Appel, Kinzel & Nolte, SAFE.

Guarantee: every cell of every stated table is 0 or at least the tolerance, kept margins are exact (tied variables are
only exchanged between records that agree in the rest of the margin), all other columns are untouched. All tables are
recounted from the output before it is returned.
"""
