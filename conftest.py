"""A ledger for every test and doctest: none touches that of the person who runs them."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from safeswap.arrays.compiled import Budget

# Tests run kernels compiled, as large files do; what small files do in NumPy is compared with that in test_numpy_forms.
Budget.left = -1


@pytest.fixture(scope="module", autouse=True)
def ledger_of_module() -> Iterator[Path]:
    """Name a ledger file for what a module sets up once for all of its tests."""
    with TemporaryDirectory(prefix="safeswap-ledger-") as folder, pytest.MonkeyPatch.context() as patched:
        path = Path(folder) / "ledger.db"
        patched.setenv("SAFESWAP_LEDGER", str(path))
        yield path


@pytest.fixture(autouse=True)
def own_ledger(ledger_of_module: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Name the ledger file of this test; it is made when something is released."""
    with TemporaryDirectory(prefix="safeswap-ledger-") as folder:
        path = Path(folder) / "ledger.db"
        monkeypatch.setenv("SAFESWAP_LEDGER", str(path))
        yield path
