"""Local suppression: blank as little as possible so that no combination of keys is unsafe.

::

    method      specification and the method itself
    promises    what the output guarantees, counted again from its columns
    problem     the problem on classes of records, and what makes an answer safe
    solver      the cheapest answer: greedy, then integer programmes part by part, with a proved bound
    greedy      a good answer quickly, where a blank is a value or matches nothing
    sweeps      compiled loops of the greedy answer; the quick answer by published keys
    programme   the integer programme over classes of records
    wildcards   answers and bounds where a blank matches every value

Sources: Hundepool & Willenborg 1996 (ARGUS); Willenborg & de Waal 2001.

Guarantee: values only become missing, and afterwards no combination of keys has fewer records than its tolerance. Both
are verified on the output by an independent count. The stated gap is a proved bound: every relaxation that the search
solves only leaves constraints out, so no safe answer costs less.
"""
