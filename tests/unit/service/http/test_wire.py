"""API models of rows: the columns that a model names and no others, except for the fields that are stated."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError
from sqlalchemy import create_engine, literal, select

from safeswap.service.http.wire import Wire


class Person(Wire):
    name: str
    role: str
    created_at: datetime | None


COLUMNS = {"name": "ada", "role": "analyst", "created_at": 86400.5, "password_hash": "secret"}


def rows():
    statement = select(*(literal(value).label(name) for name, value in COLUMNS.items()))
    with create_engine("sqlite://").connect() as connection:
        row = connection.execute(statement).one()
    return [row, row._mapping, COLUMNS]


@pytest.mark.parametrize("row", rows(), ids=["row", "mapping", "dict"])
def test_a_model_has_the_columns_it_names_and_times_in_utc(row):
    found = Person.of(row, role="viewer")
    assert found == Person(name="ada", role="viewer", created_at=datetime(1970, 1, 2, 0, 0, 0, 500_000, UTC))
    assert "secret" not in found.model_dump_json()
    assert found.created_at.isoformat() == "1970-01-02T00:00:00.500000+00:00"


def test_a_column_that_is_not_there_is_missed_and_a_field_that_is_not_there_refused():
    with pytest.raises(ValidationError, match="created_at"):
        Person.of({"name": "ada", "role": "analyst"})
    with pytest.raises(ValidationError, match="nickname"):
        Person.of(COLUMNS, nickname="countess")
