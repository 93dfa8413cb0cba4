"""What all requests and answers have in common."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # control characters, writing directions, ends of lines


def plain_text(text: str) -> str:
    """A text that is what it looks like: no NUL, no end of a line, nothing that turns the direction of writing.

    >>> plain_text("Étude 2026"), plain_text("family \U0001f469\u200d\U0001f467")
    ('Étude 2026', 'family 👩\u200d👧')
    """
    if any(unicodedata.category(character) in _UNSEEN and character not in _JOINERS for character in text):
        raise ValueError("a name has no control characters")
    return text


_JOINERS = "\u200c\u200d"  # letters of some scripts need them
Text = Annotated[str, AfterValidator(plain_text)]
Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(plain_text)]
AttributeName = Annotated[str, Field(min_length=1, max_length=200)]
"""As it stands in the file, whatever it is."""
Identifier = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z_-]+$")]


class Wire(BaseModel):
    """A value that goes over the wire: nothing unknown is taken in silence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def moment(seconds: float | None) -> datetime | None:
    """A time of the database as one of the contract.

    >>> moment(0.0).isoformat()
    '1970-01-01T00:00:00+00:00'
    """
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def example(**values: Any) -> dict[str, Any]:
    """An example for the contract, as pydantic wants it told."""
    return {"examples": [values]}
