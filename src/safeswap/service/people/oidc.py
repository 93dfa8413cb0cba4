"""Log-in through the agency's identity provider: OpenID Connect, authorisation code with PKCE.

What has to be remembered between leaving for the provider and coming back (state, nonce, verifier) goes along in a
sealed cookie: it belongs to the one browser that left, and the service keeps nothing. Whoever the provider vouches for
still needs an account here, for the role.
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
ALGORITHMS = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA"]  # signed by the provider, never by us

_CONTEXT = "log-in through the provider"
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True, kw_only=True)
class Departure:
    """What a browser takes along to the provider and has to bring back."""

    state: str
    nonce: str
    verifier: str
    redirect_uri: str
    at: float

    def sealed(self, vault: Vault) -> str:
        """As a cookie that nobody else can read or make."""
        return base64.urlsafe_b64encode(vault.seal(json.dumps(asdict(self)).encode(), _CONTEXT)).decode()


def opened(vault: Vault, cookie: str) -> Departure:
    """What the browser took along; refused if it is not ours or too old."""
    try:
        departure = Departure(**json.loads(vault.open(base64.urlsafe_b64decode(cookie), _CONTEXT)))
    except (ValueError, TypeError, InputError):
        raise _refused("the log-in was not begun in this browser") from None
    if time.time() - departure.at > MOST_SECONDS:
        raise _refused("the log-in took too long")
    return departure


class Provider:
    """The provider that the settings name; where its addresses are is asked of itself."""

    def __init__(self, settings: OpenIdConnect) -> None:
        address = urlsplit(settings.issuer)
        if address.scheme != "https" and address.hostname not in _LOOPBACK:
            raise SpecError("the identity provider has to be asked over https", code="bad-settings", setting="oidc")
        self.settings = settings

    def departure(self, *, redirect_uri: str) -> tuple[str, Departure]:
        """The address at the provider to go to, and what to take along."""
        departure = Departure(
            state=secrets.token_urlsafe(24),
            nonce=secrets.token_urlsafe(24),
            verifier=secrets.token_urlsafe(48),
            redirect_uri=redirect_uri,
            at=time.time(),
        )
        address: str = prepare_grant_uri(
            self._metadata()["authorization_endpoint"],
            client_id=self.settings.client_id,
            response_type="code",
            redirect_uri=redirect_uri,
            scope="openid profile",
            state=departure.state,
            nonce=departure.nonce,
            code_challenge=create_s256_code_challenge(departure.verifier),
            code_challenge_method="S256",
        )
        return address, departure

    def arrival(self, departure: Departure, *, code: str, state: str) -> str:
        """The name of the person who comes back with a code; every part of the proof is checked."""
        if not hmac.compare_digest(state.encode(), departure.state.encode()):
            raise _refused("the answer belongs to another log-in")
        metadata = self._metadata()
        token = self._exchange(metadata["token_endpoint"], departure, code)
        claims = self._checked(token, departure, metadata)
        name = claims.get(self.settings.name_claim)
        if not isinstance(name, str) or not name:
            raise _refused("the provider does not tell the name")
        return name

    def _exchange(self, address: str, departure: Departure, code: str) -> str:
        secret = self.settings.client_secret_file.read_text(encoding="utf-8").strip()
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": departure.redirect_uri}
        form |= {"client_id": self.settings.client_id, "code_verifier": departure.verifier}
        answer = self._ask("POST", address, data=form, auth=(self.settings.client_id, secret))
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise _refused("the provider did not accept the code")
        return token

    def _checked(self, token: str, departure: Departure, metadata: dict[str, Any]) -> dict[str, Any]:
        keys = KeySet.import_key_set(self._ask("GET", metadata["jwks_uri"]))  # type: ignore[arg-type]
        rules = jwt.JWTClaimsRegistry(
            leeway=60,
            iss={"essential": True, "value": self.settings.issuer},
            aud={"essential": True, "value": self.settings.client_id},
            exp={"essential": True},
            nonce={"essential": True, "value": departure.nonce},
        )
        try:
            claims = jwt.decode(token, keys, algorithms=ALGORITHMS).claims
            rules.validate(claims)
        except (JoseError, ValueError):
            raise _refused("the provider's proof does not hold") from None
        return claims

    def _metadata(self) -> dict[str, Any]:
        found = self._ask("GET", self.settings.issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != self.settings.issuer:
            raise Unavailable("the identity provider goes by another name than the settings say", code="provider")
        return found

    def _ask(self, method: str, address: str, **told: Any) -> dict[str, Any]:
        try:
            answer = httpx.request(method, address, timeout=10.0, **told)
            found = answer.json()
        except (httpx.HTTPError, ValueError):
            raise Unavailable("the identity provider does not answer", code="provider") from None
        return found if isinstance(found, dict) else {}


def _refused(why: str) -> NotLoggedIn:
    return NotLoggedIn(why, code="provider", hint="begin again: GET /session/provider")
