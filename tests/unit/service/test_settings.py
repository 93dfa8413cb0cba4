from __future__ import annotations

from pathlib import Path

import pytest

from safeswap.errors import SpecError
from safeswap.service.settings import Settings, read_settings


def test_paths_are_whole_whatever_directory_a_process_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = Settings(store="store", master_key_file="master.key", folders=("surveys",))
    assert found.store == tmp_path / "store"
    assert found.master_key_file == tmp_path / "master.key"
    assert found.folders == (tmp_path / "surveys",)
    assert Settings.model_validate(found.model_dump(mode="json")) == found


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"master_key_file": "/srv/s/master.key"}, "outside the store"),
        ({"host": "10.0.0.1"}, "TLS certificate"),
        ({"host": "0.0.0.0", "tls_certificate": "/c", "tls_key": "/k"}, "hosts"),
        ({"tls_certificate": "/c"}, "must be given together"),
        ({"single_user": True, "host": "10.0.0.1", "tls_certificate": "/c", "tls_key": "/k"}, "loopback"),
        ({"folders": ["/srv"]}, "must not contain the store"),
        ({"folders": ["/srv/s/projects"]}, "must not contain the store"),
        ({"folders": ["/etc"]}, "master key"),
        ({"port": 70000}, "port"),
        ({"hots": ["a"]}, "hots"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused_with_a_reason(given: dict[str, object], told: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_settings(environment={}, **{"store": "/srv/s", "master_key_file": "/etc/k", **given})
    assert told in str(caught.value)


def test_the_command_line_comes_before_the_environment_and_that_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "service.toml"
    file.write_text('store = "/srv/file"\nmaster_key_file = "/etc/k"\nport = 1\nsession_minutes = 5\n')
    environment = {"SAFESWAP_STORE": "/srv/environment", "SAFESWAP_PORT": "2", "SAFESWAP_HOSTS": "a.example:b.example"}
    found = read_settings(file, environment=environment, port=3)
    assert (found.store, found.port, found.session_minutes) == (Path("/srv/environment"), 3, 5)
    assert found.hosts == ("a.example", "b.example")
