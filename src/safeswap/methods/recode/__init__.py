"""Recoding: replace values by coarser ones, step by step.

``steps`` are the frozen steps, ``rules`` their effect on single values, ``hierarchy`` trees of codes, ``apply`` runs a
step on a file, ``recipe`` is a list of steps with undo, ``method`` the masking method with its specification.

Sources: Willenborg & de Waal 1996 and 2001; the software ARGUS (Hundepool & Willenborg 1996).

Guarantee: nothing is drawn and released values are true. A step maps values, never records, so equal values become
equal in all records. ``method.Recoded`` verifies this on the result by code that is independent of ``rules``.
"""
