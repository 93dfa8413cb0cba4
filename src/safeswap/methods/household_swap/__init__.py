"""Targeted record swapping: whole households exchange their geography with similar households elsewhere.

::

    spec         specification
    method       plan, draw, promises, effects; risk, distance, distortion, and the intruder's chance, by level
    households   households of coded columns; preconditions
    swapping     areas, risk, rounds, rate
    pairing      partners at risk and donors, nearest first; top-up to the rate (kernels)
    search       Edmonds' search for those left over (kernel, with the proof)

Sources: the targeted record swapping of census offices (Shlomo, Tudor & Groom 2010; ONS 2021; Eurostat).

Definitions: c(i, l) counts the persons who share the risk variables and the level-l area of person i. A household must
leave its area at the topmost level q at which a member has c < k. Two households may swap if they agree in a profile
and their areas differ at the smaller of their two levels q: as areas nest, one comparison serves both.

Guarantee: households stay together; pairs are disjoint; the households of a pair agree in the loosest profile at
least, so the number of households per finest area and cell of it is exact, and with ``match_size`` that of persons too.
The number of households at risk that move is the largest that any pairing under the loosest profile allows, unless a
cell was too large to search, which is stated (``largest_number_proved``). Everything is a function of the key and the
household numbers. Not promised: k-anonymity (who is rare is rare elsewhere too); the rate, where more are at risk.
"""
