"""Names of attributes: a type that does without NumPy, so that ``--help`` does not wait for it."""

from __future__ import annotations

Names = tuple[str, ...]
