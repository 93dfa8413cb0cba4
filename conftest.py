"""A ledger of its own for every test and doctest: none touches that of whoever runs them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest


@pytest.fixture(autouse=True)
def own_ledger(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The ledger file of this test; it comes to be when something is released."""
    with TemporaryDirectory(prefix="safeswap-ledger-") as folder:
        path = Path(folder) / "ledger.db"
        monkeypatch.setenv("SAFESWAP_LEDGER", str(path))
        yield path
