"""Methods that change single values, one file each; ``spec`` and ``promises`` are shared.

====================  ==================================================  ==========================================
method                source                                              guarantee
====================  ==================================================  ==========================================
``rank_swap``         Moore 1996; Domingo-Ferrer & Torra 2001             same distribution; ranks within a window
``noise``             Kim 1986; Brand 2002                                moments, in expectation
``microaggregation``  Domingo-Ferrer & Mateo-Sanz 2002; Domingo-Ferrer &  groups of at least k; means kept up to
                      Torra 2005; Hansen & Mukherjee 2003                 rounding
``top_bottom``        Willenborg & de Waal 2001                           no value beyond the bounds
``pram``              Gouweleeuw, Kooiman, Willenborg & de Wolf 1998      margins kept, in expectation (proof there)
====================  ==================================================  ==========================================

Every guarantee is an invariant in ``promises``, verified on the result; those in expectation at a level that chance
exceeds once in 10¹² files.
"""
