"""The targeted Confidentiality Edit: every class below tolerance exchanges values with a neighbouring class.

::

    method         specification, preconditions, plan, apply, facts
    promises       treated classes, recounted independently
    classes        the sorted file and its classes; the walk as printed
    keyed_walk     the walk for release: record and partner drawn by the key
    window         windows of candidates, with the claim of their size (compiled)
    near_optimal   the order of keys that disturbs a continuous item least

Source: Moore 1996, sections VII to XIV.

Guarantee: every combination of the keys below tolerance has a changed record, or is counted in the audit record.
Exchanges keep all margins of the exchanged columns, and all other columns. In the keyed variant each exchanged record
has at least ``candidates`` possible partners, also for an observer of the result, unless its stratum is smaller.
"""
