"""The confidentiality plot: perturbation and neighbours of every released record.

``plots`` chooses the plot that fits the keys: ``numeric_keys`` by distance, ``fellegi_sunter`` by match weights,
``frequencies`` by counts of categorical keys. ``values`` holds the result and the policy, ``neighbours`` the compiled
search, ``record_match`` finds which record is which in two files.

Source: Seri (Istat), A graphical framework to evaluate risk assessment and information loss at individual level.

Guarantee: neighbours and ties are exact, equal to a comparison of every pair; δ is exact up to 20,000 records, above
that estimated from a keyed sample with its standard error. A plot is about single records: for internal use only.
"""
