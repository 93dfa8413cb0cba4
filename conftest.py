"""What every test and doctest has: a ledger of its own, and keys that are the same in every run."""

import hashlib
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from safeswap.arrays.compiled import Budget
from safeswap.model.key import Key

# Another text is another run: other keys, and a service that answers late at random. `make shake` tries several.
SHAKE = os.environ.get("SAFESWAP_SHAKE", "")

# Tests run kernels compiled, as large files do; what small files do in NumPy is compared with that in test_numpy_forms.
Budget.left = -1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Derive the keys that a test generates from its name: what fails in one run fails in the next.

    Before any fixture, since a service makes keys in fixtures. Processes that a test starts draw real keys.
    """
    drawn = count()

    def generate(cls: type[Key]) -> Key:
        return cls(hashlib.sha256(f"{SHAKE}{item.nodeid} {next(drawn)}".encode()).digest())

    Key.generate = classmethod(generate)  # type: ignore[method-assign,assignment]


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
