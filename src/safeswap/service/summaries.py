"""What lists show of a result: its figures, without the tables behind them."""

from __future__ import annotations

from typing import Any

_LONG = frozenset({"cells", "combinations"})


def brief(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary as lists show it; the tables behind the figures are asked for one by one.

    >>> brief({"made": 3, "scores": [{"measure": "n_rule", "value": 0.1, "detail": [1, 2]}], "cells": [[]]})
    {'made': 3, 'scores': [{'measure': 'n_rule', 'value': 0.1}]}
    """
    kept = {name: value for name, value in summary.items() if name not in _LONG}
    if "scores" in kept:
        kept["scores"] = [{name: each[name] for name in each if name != "detail"} for each in kept["scores"]]
    if isinstance(kept.get("choice"), dict):
        kept["choice"] = {name: value for name, value in kept["choice"].items() if name != "rivals"}
    return kept
