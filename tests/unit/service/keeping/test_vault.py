from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.service.installed import settings_in

from safeswap.errors import InputError
from safeswap.model.key import Key
from safeswap.service.keeping.vault import MAGIC, PIECE_BYTES, SALT_BYTES, Vault, open_vault


@pytest.fixture
def vault(tmp_path: Path) -> Vault:
    return open_vault(settings_in(tmp_path))


@given(content=st.binary(max_size=300), position=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_bit_of_what_is_sealed_can_be_changed(content, position, bit):
    vault = Vault(Key(bytes(32)), None)  # type: ignore[arg-type]
    sealed = bytearray(vault.seal(content, "record"))
    assert vault.open(bytes(sealed), "record") == content
    sealed[int(position * len(sealed))] ^= 1 << bit
    with pytest.raises(InputError) as refused:
        vault.open(bytes(sealed), "record")
    assert refused.value.code == "seal-broken"


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_file_of_any_length_comes_back(vault, tmp_path, size):
    content = bytes(range(251)) * (size // 251 + 1)
    (tmp_path / "plain").write_bytes(content[:size])
    vault.seal_file(tmp_path / "plain", tmp_path / "sealed", "file")
    vault.open_file(tmp_path / "sealed", tmp_path / "again", "file")
    assert (tmp_path / "again").read_bytes() == content[:size]
    assert content[:64] not in (tmp_path / "sealed").read_bytes()
    assert stat.S_IMODE((tmp_path / "sealed").stat().st_mode) == 0o600


def pieces(sealed: bytes) -> tuple[bytes, list[bytes]]:
    start, step = len(MAGIC) + SALT_BYTES, PIECE_BYTES + 16
    return sealed[:start], [sealed[i : i + step] for i in range(start, len(sealed), step)]


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(lambda p: p[:-1], id="the last piece left out"),
        pytest.param(lambda p: p[:1], id="cut after the first"),
        pytest.param(lambda p: [p[1], p[0], p[2]], id="two pieces swapped"),
        pytest.param(lambda p: [p[0], p[0], p[1], p[2]], id="a piece repeated"),
        pytest.param(lambda p: [*p, p[2]], id="something appended"),
        pytest.param(lambda p: [*p[:-1], p[-1][:-1]], id="a byte short"),
        pytest.param(lambda p: [], id="nothing but the head"),
    ],
)
def test_pieces_cannot_be_moved_repeated_or_left_out(vault, tmp_path, forged):
    (tmp_path / "plain").write_bytes(bytes(2 * PIECE_BYTES + 5))
    vault.seal_file(tmp_path / "plain", tmp_path / "sealed", "file")
    head, parts = pieces((tmp_path / "sealed").read_bytes())
    assert len(parts) == 3
    (tmp_path / "sealed").write_bytes(head + b"".join(forged(parts)))
    with pytest.raises(InputError):
        vault.open_file(tmp_path / "sealed", tmp_path / "again", "file")
    assert not (tmp_path / "again").exists()
    assert {path.name for path in tmp_path.iterdir()} == {"plain", "sealed", "master.key", "store"}


def test_what_was_sealed_for_one_thing_does_not_open_as_another(vault):
    sealed = vault.seal(b"pairs", "release 1")
    with pytest.raises(InputError):
        vault.open(sealed, "release 2")
    with pytest.raises(InputError):
        Vault(Key.generate(), vault.store).open(sealed, "release 1")


def test_the_same_content_is_never_sealed_alike(vault):
    assert vault.seal(b"pairs", "a") != vault.seal(b"pairs", "a")


def test_a_folder_comes_back_and_its_files_cannot_change_places(vault, tmp_path):
    (tmp_path / "audit" / "deep").mkdir(parents=True)
    (tmp_path / "audit" / "pairs.parquet").write_bytes(b"pairs")
    (tmp_path / "audit" / "deep" / "audit.json").write_bytes(b"{}")
    vault.seal_folder(tmp_path / "audit", tmp_path / "sealed", "release 1")
    vault.open_folder(tmp_path / "sealed", tmp_path / "again", "release 1")
    assert (tmp_path / "again" / "pairs.parquet").read_bytes() == b"pairs"
    assert (tmp_path / "again" / "deep" / "audit.json").read_bytes() == b"{}"
    (tmp_path / "sealed" / "deep" / "audit.json.sealed").replace(tmp_path / "sealed" / "pairs.parquet.sealed")
    with pytest.raises(InputError):
        vault.open_folder(tmp_path / "sealed", tmp_path / "forged", "release 1")
    assert not (tmp_path / "forged").exists()


def test_a_project_has_one_key_whoever_asks_first(vault):
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(lambda _: vault.project_key("a1").secret, range(16)))
    assert len(keys) == 1
    assert keys != {vault.project_key("a2").secret}
    assert keys.pop() not in (vault.store.project("a1") / "key.sealed").read_bytes()


def test_the_key_of_another_project_does_not_open(vault):
    vault.project_key("a1")
    content = (vault.store.project("a1") / "key.sealed").read_bytes()
    (vault.store.project("a2") / "key.sealed").write_bytes(content)
    with pytest.raises(InputError):
        vault.project_key("a2")


def test_a_master_key_that_others_can_read_is_refused(tmp_path):
    settings = settings_in(tmp_path)
    assert stat.S_IMODE(settings.master_key_file.stat().st_mode) == 0o600
    settings.master_key_file.chmod(0o640)
    with pytest.raises(InputError) as refused:
        open_vault(settings)
    assert refused.value.code == "key-not-private"
