"""Measures of risk and of distortion.

``risk/`` and ``utility/`` hold a file per measure, ``plot/`` the confidentiality plot; ``base`` is the protocol of a
measure. Measures read the two files of a comparison and never call a method.
"""
