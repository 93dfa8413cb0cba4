"""One service for all tests that do not need one of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.service.serving import Running, running


@pytest.fixture(scope="session")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A running service with a viewer, an analyst, officers and an administrator."""
    with running(tmp_path_factory.mktemp("town")) as here:
        yield here
