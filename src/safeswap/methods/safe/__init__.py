"""SAFE: every published cell is 0 or at least the tolerance.

Tables (one or several, linked by shared figures), with kept margins exact and little change::

    spec          specification, results and promises, of records as well
    problem       a table in the solvers' form: allowed values of cells, lines to keep
    table         one table: the best answer in time, checked before it is returned
    linked        several tables; soft margins
    heuristic     a good table quickly, at any size
    anneal        its simulated annealing
    bounds        lower bounds of the change, by multipliers and by lines
    milp          the nearest table by a mixed-integer programme (HiGHS)
    certificate   why no safe table exists
    records/      records changed so that all tables of one file are safe

Sources: Appel, Kinzel & Nolte, SAFE; Moore 1996, section V.

Guarantee: every cell is 0 or at least the tolerance and every kept margin is exact, checked on each result before it
is returned. "Optimal" means that the value equals a proved lower bound; every bound comes from a relaxation that no
safe table violates (see ``bounds``).
"""
