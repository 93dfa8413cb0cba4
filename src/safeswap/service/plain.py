"""What goes from one process to another, or into a column of JSON: plain values, whatever they were computed as."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def plain(value: Any) -> Any:
    """Plain values: arrays as lists, paths as the name of the file only, what is not finite as None.

    >>> import numpy as np
    >>> plain({"file": Path("/srv/store/a.csv"), "shares": np.array([0.5, np.nan]), 3: {1}})
    {'file': 'a.csv', 'shares': [0.5, None], '3': [1]}
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each) for each in value]
    if isinstance(value, Path):
        return value.name
    for convert in ("tolist", "isoformat"):
        if hasattr(value, convert):
            return plain(getattr(value, convert)())
    raise TypeError(f"{type(value).__name__} is not plain")


def as_json(value: Any) -> str:
    """One line of JSON that every reader of JSON takes."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def public_error(error: Mapping[str, Any]) -> dict[str, Any]:
    """An error as it may be shown to whoever asked for the job: paths of the server become names of files.

    >>> public_error({"error": "InputError", "code": "x", "message": "", "hint": "", "fields": {"file": "/srv/a.csv"}})
    {'error': 'InputError', 'code': 'x', 'message': '', 'hint': '', 'fields': {'file': 'a.csv'}}
    """
    fields = {name: _name(each) if name == "file" else plain(each) for name, each in error.get("fields", {}).items()}
    return {**{name: str(error.get(name, "")) for name in ("error", "code", "message", "hint")}, "fields": fields}


def _name(path: Any) -> str:
    return Path(str(path)).name
