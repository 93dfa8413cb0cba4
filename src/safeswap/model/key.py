"""The secret key from which all randomness is derived."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from safeswap.errors import SpecError
from safeswap.model.checked import check_field_types, check_types

KEY_BYTES = 32


@check_field_types
@dataclass(frozen=True)
class Key:
    """A 256-bit secret key. ``repr`` shows its public identifier only.

    >>> key = Key.generate()
    >>> key == Key(key.secret), key.releasable
    (True, True)
    >>> Key.insecure(seed=1).releasable
    False
    """

    secret: bytes = field(repr=False)
    releasable: bool = True

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise SpecError(
                f"a key must have {KEY_BYTES} bytes, but this one has {len(self.secret)}",
                code="bad-key",
                hint="create one with `safeswap keygen` or Key.generate()",
            )

    @classmethod
    def generate(cls) -> Key:
        """Return a fresh key from the operating system's randomness."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    @check_types
    def insecure(cls, *, seed: int) -> Key:
        """Return a key from a small number, for teaching and tests: results are stamped *not for release*."""
        return cls(hashlib.sha256(b"safeswap insecure seed " + str(int(seed)).encode()).digest(), releasable=False)

    @property
    def id(self) -> str:
        """A public identifier that does not reveal the key; recorded in audit records."""
        return hmac.new(self.secret, b"safeswap key id", hashlib.sha256).hexdigest()[:16]

    def __repr__(self) -> str:
        return f"<Key {self.id}{'' if self.releasable else ', not for release'}>"
