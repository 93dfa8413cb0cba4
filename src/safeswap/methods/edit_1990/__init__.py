"""The Confidentiality Edit of the 1990 census: sampled households exchange areas with others of the same key.

::

    spec        specification
    method      plan, draw, promises, facts
    checks      preconditions, from counts
    areas       households by key and area in memory; remedies for those without a partner
    same_key    sampling and pairing as kernels for every engine, with the proof

Sources: Moore 1996, sections II to IV, after Griffin, Navarro & Flores-Baez 1989.

Guarantee: the households of a pair agree in all keys and in the geography down to ``within``, so counts by the keys are
exact in every area of every level; nothing but the geography moves. As many sampled households find a partner as
possible (claims in ``same_key``). Pairs depend on draws only, so all engines give the same bytes.
"""
