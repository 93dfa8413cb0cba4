"""A key file is its owner's alone, and gives the key back or nothing."""

from __future__ import annotations

import base64
import json
import os
import stat
from pathlib import Path

import pytest

from safeswap.errors import InputError, OutputError, SpecError
from safeswap.files.keyfile import read_key, write_key
from safeswap.model.key import Key


def key_text(key: Key) -> str:
    return "safeswap-key-1:" + base64.urlsafe_b64encode(key.secret).decode()


def test_a_key_survives_its_file_exactly(tmp_path: Path) -> None:
    key = Key.generate()
    write_key(key, tmp_path / "a.key")
    assert read_key(tmp_path / "a.key") == key
    assert (tmp_path / "a.key").read_text() == key_text(key) + "\n"


def test_the_file_is_readable_by_its_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_key(Key.generate(), tmp_path / "a.key")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.key").stat().st_mode) == 0o600


def test_an_existing_key_is_not_overwritten(tmp_path: Path) -> None:
    key = Key.generate()
    write_key(key, tmp_path / "a.key")
    with pytest.raises(OutputError) as caught:
        write_key(Key.generate(), tmp_path / "a.key")
    assert caught.value.code == "exists"
    assert read_key(tmp_path / "a.key") == key


def test_a_key_from_a_small_seed_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        write_key(Key.insecure(seed=1), tmp_path / "a.key")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o666])
def test_a_key_that_others_have_rights_to_is_refused(tmp_path: Path, mode: int) -> None:
    write_key(Key.generate(), tmp_path / "a.key")
    (tmp_path / "a.key").chmod(mode)
    with pytest.raises(InputError) as caught:
        read_key(tmp_path / "a.key")
    assert caught.value.code == "key-not-private"


def test_a_link_to_a_shared_key_does_not_help(tmp_path: Path) -> None:
    write_key(Key.generate(), tmp_path / "a.key")
    (tmp_path / "a.key").chmod(0o644)
    (tmp_path / "link.key").symlink_to(tmp_path / "a.key")
    with pytest.raises(InputError) as caught:
        read_key(tmp_path / "link.key")
    assert caught.value.code == "key-not-private"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.key", 0o600)
    (tmp_path / "folder.key").mkdir(0o700)
    for name in ("pipe.key", "folder.key"):
        with pytest.raises(InputError):
            read_key(tmp_path / name)


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_key(tmp_path / "none.key")
    assert caught.value.code == "missing-file"


SECRET = Key(b"\xfe" * 32)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "safeswap-key-1:",
        key_text(SECRET)[:-6],
        key_text(SECRET) + "AAAA",
        key_text(SECRET).replace("-1:", "-2:"),
        key_text(SECRET) + "\n" + key_text(SECRET) + "\n",
        " " + key_text(SECRET),
        key_text(SECRET).replace("_", "/"),
        "\xff" * 60,
        "x" * 10_000,
    ],
)
def test_a_malformed_key_is_refused_and_not_quoted(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.key").write_text(text, encoding="latin-1")
    (tmp_path / "a.key").chmod(0o600)
    with pytest.raises(InputError) as caught:
        read_key(tmp_path / "a.key")
    assert caught.value.code == "bad-key-file"
    assert "_v7" not in json.dumps(caught.value.as_dict())


def test_line_ends_and_padding_do_not_matter(tmp_path: Path) -> None:
    for text in (key_text(SECRET), key_text(SECRET).rstrip("=") + "\r\n"):
        (tmp_path / "a.key").write_text(text)
        (tmp_path / "a.key").chmod(0o600)
        assert read_key(tmp_path / "a.key") == SECRET
