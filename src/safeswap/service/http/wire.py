"""The base of the API models: frozen values, plain texts, UTC times."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from safeswap.model.spec import Strict

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control characters, text direction, line ends
_JOINERS = "\u200c\u200d"  # letters of some scripts need them


def plain_text(text: str) -> str:
    """Validate that a text is what it looks like: no control characters, line ends or direction marks.

    >>> plain_text("Étude 2026"), plain_text("family \U0001f469\u200d\U0001f467")
    ('Étude 2026', 'family 👩\u200d👧')
    """
    if any(unicodedata.category(character) in _UNSEEN and character not in _JOINERS for character in text):
        raise ValueError("a name has no control characters")
    return text


Text = Annotated[str, AfterValidator(plain_text)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(plain_text)]

AttributeName = Annotated[str, Field(min_length=1, max_length=200)]
"""Exactly as in the file."""
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]


class Wire(Strict):
    """Base of API models: frozen, and unknown fields are refused."""


def to_datetime(seconds: float | None) -> datetime | None:
    """Convert a database time to a UTC datetime.

    >>> to_datetime(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def example(**values: Any) -> dict[str, Any]:
    """Return an example for the JSON schema."""
    return {"examples": [values]}
