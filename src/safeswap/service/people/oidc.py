"""Login through the agency's identity provider: OpenID Connect, authorisation code flow with PKCE.

State, nonce and verifier travel in a sealed cookie: they are bound to the browser that started the login, and the
service stores nothing. A user of the provider still needs an account here, for the role.
"""

from __future__ import annotations

import base64
import hmac
import json
import secrets
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from safeswap.errors import InputError, SpecError
from safeswap.service.http.problems import NotLoggedIn, Unavailable
from safeswap.service.keeping.vault import Vault
from safeswap.service.settings import OpenIdConnect

COOKIE = "safeswap_log_in"
MOST_SECONDS = 600
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]  # asymmetric only

_CONTEXT = "log-in through the provider"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True, kw_only=True)
class PendingLogin:
    """State of a login in progress, kept in the browser's cookie."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    at: float

    def seal(self, vault: Vault) -> str:
        """Encrypt as a cookie value."""
        return base64.urlsafe_b64encode(vault.seal(json.dumps(asdict(self)).encode(), _CONTEXT)).decode()


def open_pending(vault: Vault, cookie: str) -> PendingLogin:
    """Decrypt the cookie of a login in progress; refuse a forged or expired one."""
    try:
        pending = PendingLogin(**json.loads(vault.open(base64.urlsafe_b64decode(cookie), _CONTEXT)))
    except (ValueError, TypeError, InputError):
        raise _refusal("the log-in was not started in this browser") from None
    if time.time() - pending.at > MOST_SECONDS:
        raise _refusal("the log-in took too long")
    return pending


class Provider:
    """The configured identity provider; its endpoints are discovered."""

    def __init__(self, settings: OpenIdConnect) -> None:
        address = urlsplit(settings.issuer)
        if address.scheme != "https" and address.hostname not in _LOOPBACK:
            raise SpecError("the identity provider must be reached over https", code="bad-settings", setting="oidc")
        self.settings = settings

    def begin(self, *, redirect_uri: str) -> tuple[str, PendingLogin]:
        """Begin a login: return the provider's URL to redirect to, and the state to keep."""
        pending = PendingLogin(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            redirect_uri=redirect_uri,
            at=time.time(),
        )
        address: str = prepare_grant_uri(
            self._fetch_metadata()["authorization_endpoint"],
            client_id=self.settings.client_id,
            response_type="code",
            redirect_uri=redirect_uri,
            scope="openid profile",
            state=pending.state,
            nonce=pending.nonce,
            code_challenge=create_s256_code_challenge(pending.verifier),
            code_challenge_method="S256",
        )
        return address, pending

    def complete(self, pending: PendingLogin, *, code: str, state: str) -> str:
        """Complete a login: exchange the code, verify the ID token and return the user name."""
        if not hmac.compare_digest(state.encode(), pending.state.encode()):
            raise _refusal("the answer belongs to another log-in")
        metadata = self._fetch_metadata()
        token = self._exchange(metadata["token_endpoint"], pending, code)
        claims = self._verify_token(token, pending, metadata)
        name = claims.get(self.settings.name_claim)
        if not isinstance(name, str) or not name:
            raise _refusal("the provider did not send a name")
        return name

    def _exchange(self, address: str, pending: PendingLogin, code: str) -> str:
        secret = self.settings.client_secret_file.read_text(encoding="utf-8").strip()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": pending.redirect_uri}
        form |= {"client_id": self.settings.client_id, "code_verifier": pending.verifier}
        answer = self._request("POST", address, data=form, auth=(self.settings.client_id, secret))
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise _refusal("the provider did not accept the code")
        return token

    def _verify_token(self, token: str, pending: PendingLogin, metadata: dict[str, Any]) -> dict[str, Any]:
        keys = KeySet.import_key_set(self._request("GET", metadata["jwks_uri"]))  # type: ignore[arg-type]
        rules = jwt.JWTClaimsRegistry(
            leeway=60,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": self.settings.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": pending.nonce},
        )
        try:
            claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
            rules.validate(claims)
        except (JoseError, ValueError):
            raise _refusal("the provider's signature is not valid") from None
        return claims

    def _fetch_metadata(self) -> dict[str, Any]:
        found = self._request("GET", self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.settings.issuer:
            raise Unavailable("the identity provider states another issuer than the settings", code="provider")
        return found

    def _request(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        try:
            answer = httpx.request(method, address, timeout=10.0, **options)
            found = answer.json()
        except (httpx.HTTPError, ValueError):
            raise Unavailable("the identity provider does not answer", code="provider") from None
        return found if isinstance(found, dict) else {}


def _refusal(why: str) -> NotLoggedIn:
    return NotLoggedIn(why, code="provider", hint="start again: GET /session/provider")
