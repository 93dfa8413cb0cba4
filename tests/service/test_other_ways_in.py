"""Log-in through a proxy in front, and through an identity provider that really answers on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from tests.service.serving import Running, running

from safeswap.errors import SpecError
from safeswap.service.people import oidc
from safeswap.service.settings import OpenIdConnect

SESSION = "/api/v1/session"


def test_the_proxy_opens_a_session_and_only_the_proxy(tmp_path: Path) -> None:
    with running(tmp_path, trusted_proxy={"header": "X-Remote-User"}) as here:
        client = here.client()
        assert client.get(f"{SESSION}/ways", headers={"X-Remote-User": "ana"}).json()["proxy"] is True
        opened = client.post(SESSION, json={}, headers={"X-Remote-User": "Ana"})
        assert (opened.status_code, opened.json()["name"]) == (201, "ana")
        # The header alone is no session: a page elsewhere could make the browser send such a request.
        assert here.client().get(SESSION, headers={"X-Remote-User": "ana"}).status_code == 401
        unknown = here.client().post(SESSION, json={}, headers={"X-Remote-User": "nobody"})
        assert (unknown.status_code, unknown.json()["code"]) == (401, "no-account")


def test_a_session_ends_where_the_proxy_names_somebody_else(tmp_path: Path) -> None:
    with running(tmp_path, trusted_proxy={}) as here:
        client = here.client("ana")
        assert client.get(SESSION, headers={"X-Remote-User": "ana"}).status_code == 200
        assert client.get(SESSION, headers={"X-Remote-User": "olga"}).status_code == 401


def test_the_header_means_nothing_from_another_address_or_without_a_proxy(tmp_path: Path, town: Running) -> None:
    with running(tmp_path, trusted_proxy={"addresses": ["10.0.0.0/8"]}) as here:
        assert here.client().post(SESSION, json={}, headers={"X-Remote-User": "ana"}).status_code == 422
    assert town.client().post(SESSION, json={}, headers={"X-Remote-User": "ana"}).status_code == 422


class Agency:
    """An identity provider: one person is logged in there, and it says what the test wants it to say."""

    def __init__(self, address: str) -> None:
        self.address, self.name, self.secret = address, "ana", "client-secret"
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.challenge = self.nonce = ""
        self.claims: dict[str, Any] = {}
        self.sign_with: Any = None
        self.header: dict[str, Any] = {"alg": "RS256", "kid": "one"}
        self.asked: list[dict[str, list[str]]] = []

    def get(self, path: str) -> dict[str, Any]:
        if path == "/.well-known/openid-configuration":
            places = {"authorization_endpoint": "/authorize", "token_endpoint": "/token", "jwks_uri": "/keys"}
            return {"issuer": self.address, **{name: self.address + place for name, place in places.items()}}
        return {"keys": [self.key.as_dict(private=False)]}

    def token(self, form: dict[str, list[str]], authorization: str) -> dict[str, Any]:
        """The proof, for whoever brings the code, the client's secret and the verifier of the challenge."""
        self.asked.append(form)
        expected = "Basic " + base64.b64encode(f"safeswap:{self.secret}".encode()).decode()
        verifier = hashlib.sha256(form["code_verifier"][0].encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).decode().rstrip("=")
        if authorization != expected or form["code"] != ["the-code"] or challenge != self.challenge:
            return {"error": "invalid_grant"}
        claims = {"iss": self.address, "aud": "safeswap", "exp": int(time.time()) + 60, "nonce": self.nonce}
        claims |= {"preferred_username": self.name, **self.claims}
        if isinstance(self.sign_with, bytes):
            return {"id_token": _by_hand(self.header, claims, self.sign_with)}
        return {"id_token": jwt.encode(self.header, claims, self.sign_with or self.key, algorithms=["RS256", "ES256"])}


def _by_hand(header: dict[str, Any], claims: dict[str, Any], secret: bytes) -> str:
    """A token as no library would make it."""
    signed = ".".join(_plain(json.dumps(part).encode()) for part in (header, claims))
    return f"{signed}.{_plain(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _plain(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


@contextmanager
def _agency() -> Iterator[Agency]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(agency.get(self.path))

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["content-length"])).decode())
            self._answer(agency.token(form, self.headers.get("authorization", "")))

        def _answer(self, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    agency = Agency(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield agency
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def joined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Agency]]:
    folder = tmp_path_factory.mktemp("joined")
    with _agency() as agency:
        (folder / "secret").write_text(agency.secret + "\n")
        settings = {"issuer": agency.address, "client_id": "safeswap", "client_secret_file": folder / "secret"}
        with running(folder, oidc=settings) as here:
            yield here, agency


@pytest.fixture(autouse=True)
def _honest(request: pytest.FixtureRequest) -> None:
    if "joined" in request.fixturenames:
        agency = request.getfixturevalue("joined")[1]
        agency.name, agency.claims, agency.sign_with = "ana", {}, None
        agency.header = {"alg": "RS256", "kid": "one"}


def _there(here: Running, agency: Agency) -> tuple[Any, dict[str, list[str]]]:
    """A browser that has left for the provider, and what it was sent there with."""
    client = here.client()
    left = client.get(f"{SESSION}/provider")
    assert left.status_code == 303
    asked = parse_qs(urlsplit(left.headers["location"]).query)
    agency.challenge, agency.nonce = asked["code_challenge"][0], asked["nonce"][0]
    return client, asked


def _back(client: Any, asked: dict[str, list[str]], **changes: str) -> Any:
    return client.get(f"{SESSION}/provider/return", params={"code": "the-code", "state": asked["state"][0], **changes})


def test_the_provider_vouches_for_somebody_who_has_an_account(joined: tuple[Running, Agency]) -> None:
    here, agency = joined
    client, asked = _there(here, agency)
    assert asked["response_type"] == ["code"]
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == [f"{here.address}{SESSION}/provider/return"]
    back = _back(client, asked)
    assert back.status_code == 200, back.text
    assert 'content="0;url=/"' in back.text
    assert "SameSite=strict" in back.headers["set-cookie"]
    assert client.get(SESSION).json()["name"] == "ana"


def test_an_account_is_still_needed(joined: tuple[Running, Agency]) -> None:
    here, agency = joined
    agency.name = "stranger"
    client, asked = _there(here, agency)
    refused = _back(client, asked)
    assert (refused.status_code, refused.json()["code"]) == (401, "no-account")


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"exp": 1},
        {"nonce": "of-another-log-in"},
        {"preferred_username": ""},
        {"preferred_username": ["ana"]},
    ],
)
def test_a_proof_that_does_not_hold_lets_nobody_in(joined: tuple[Running, Agency], claims: dict[str, Any]) -> None:
    here, agency = joined
    agency.claims = claims
    client, asked = _there(here, agency)
    refused = _back(client, asked)
    assert (refused.status_code, refused.json()["code"]) == (401, "provider")
    assert client.get(SESSION).status_code == 401


def test_a_proof_signed_by_somebody_else_lets_nobody_in(joined: tuple[Running, Agency]) -> None:
    here, agency = joined
    for key, algorithm in (
        (RSAKey.generate_key(2048, {"kid": "one"}), "RS256"),
        (ECKey.generate_key("P-256"), "ES256"),
    ):
        agency.sign_with, agency.header = key, {"alg": algorithm, "kid": "one"}
        client, asked = _there(here, agency)
        assert _back(client, asked).status_code == 401


def test_a_proof_signed_with_the_public_key_as_a_password_lets_nobody_in(joined: tuple[Running, Agency]) -> None:
    """The classic mistake: HS256 with what everybody can read."""
    here, agency = joined
    agency.sign_with = agency.key.as_pem(private=False)
    agency.header = {"alg": "HS256", "kid": "one"}
    client, asked = _there(here, agency)
    assert _back(client, asked).status_code == 401


def test_an_answer_for_another_browser_or_another_log_in_lets_nobody_in(joined: tuple[Running, Agency]) -> None:
    here, agency = joined
    client, asked = _there(here, agency)
    stranger = here.client()
    assert _back(stranger, asked).status_code == 401
    assert _back(client, asked, state="another").status_code == 401
    assert _back(client, asked, code="another").status_code == 401
    assert _back(client, asked, code="").status_code == 401
    stranger.cookies.set(oidc.COOKIE, "AAAA", domain="127.0.0.1", path="/api/v1/session/provider")
    assert _back(stranger, asked).status_code == 401


def test_a_log_in_that_was_begun_long_ago_is_begun_again(
    joined: tuple[Running, Agency], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, agency = joined
    client, asked = _there(here, agency)
    monkeypatch.setattr(oidc, "MOST_SECONDS", -1)
    assert _back(client, asked).json()["detail"] == "the log-in took too long"


def test_without_a_provider_there_is_no_such_way(town: Running) -> None:
    assert town.client().get(f"{SESSION}/provider").status_code == 404


def test_a_provider_that_does_not_answer_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    settings = {"issuer": "http://127.0.0.1:9", "client_id": "safeswap", "client_secret_file": tmp_path / "secret"}
    with running(tmp_path, oidc=settings) as here:
        answer = here.client().get(f"{SESSION}/provider")
        assert (answer.status_code, answer.json()["code"]) == (503, "provider")


def test_a_provider_is_not_asked_in_the_clear() -> None:
    with pytest.raises(SpecError):
        oidc.Provider(OpenIdConnect(issuer="http://idp.example", client_id="c", client_secret_file="/etc/s"))
