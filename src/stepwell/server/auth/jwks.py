"""The public keys that verify tokens: from a URL, a file or the set itself; cached and refreshed.

A failing endpoint is logged, and the old keys stay. Only public-key algorithms: a shared secret in
a public set would let anybody sign.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import httpx2
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from msgspec import Struct

from stepwell.clock import Clock
from stepwell.errors import ConfigurationError
from stepwell.server.auth.hosts import parse_authority

logger = logging.getLogger("stepwell.server")

KEY_KINDS: Mapping[str, tuple[str, str | None]] = {
    "RS256": ("RSA", None),
    "RS384": ("RSA", None),
    "RS512": ("RSA", None),
    "PS256": ("RSA", None),
    "PS384": ("RSA", None),
    "PS512": ("RSA", None),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
"""The kind of key and the curve that an algorithm needs."""

_LARGEST_SET = 1024 * 1024
_MOST_KEYS = 100
_SMALLEST_RSA = 2048

KeySource = str | Path | Mapping[str, Any]


class VerifyingKey(Struct, frozen=True):
    """One public key of a set."""

    kid: str | None
    kind: tuple[str, str | None]
    algorithm: str | None
    """The only algorithm that it is for, if the set says so."""
    key: Any

    def fits(self, algorithm: str) -> bool:
        """Whether a signature of that algorithm can be checked with it."""
        return KEY_KINDS.get(algorithm) == self.kind and self.algorithm in (None, algorithm)


class KeySet:
    """Keys by id, fetched when first needed, again after a while, and when an id is unknown.

    Tokens with unknown key ids can't cause more than one fetch per ``retry_seconds``.
    """

    def __init__(
        self,
        source: KeySource,
        *,
        clock: Clock,
        refresh_seconds: float = 600.0,
        retry_seconds: float = 30.0,
        timeout_seconds: float = 5.0,
    ) -> None:
        self._source = source
        self._clock = clock
        self._refresh_seconds = refresh_seconds
        self._retry_seconds = retry_seconds
        self._timeout_seconds = timeout_seconds
        self._fetching = asyncio.Lock()
        self._asked_at: float | None = None
        self._keys: tuple[VerifyingKey, ...] = ()
        if isinstance(source, str):
            _require_safe(source)
        else:
            self._keys = _usable(_read(source) if isinstance(source, Path) else source)
            self._asked_at = clock.monotonic()
            if not self._keys:
                raise ConfigurationError("the JWKS has no usable public key")

    async def find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        """Return the key with that id. Without an id, the only key that fits; None if several
        do."""
        if self._is_older_than(self._refresh_seconds) and not self._fetching.locked():
            await self._refresh()
        found = self._find(kid, algorithm)
        if found is None:
            await self._refresh()
            found = self._find(kid, algorithm)
        return found

    def _find(self, kid: str | None, algorithm: str) -> VerifyingKey | None:
        fitting = [key for key in self._keys if key.fits(algorithm)]
        if kid is not None:
            fitting = [key for key in fitting if key.kid == kid]
        return fitting[0] if len(fitting) == 1 else None

    def _is_older_than(self, seconds: float) -> bool:
        return self._asked_at is None or self._clock.monotonic() - self._asked_at >= seconds

    async def _refresh(self) -> None:
        if isinstance(self._source, Mapping):
            return
        async with self._fetching:
            # Another task may have refreshed while this one waited for the lock.
            if not self._is_older_than(self._retry_seconds):
                return
            self._asked_at = self._clock.monotonic()
            try:
                keys = _usable(await self._fetch(self._source))
            except (ConfigurationError, httpx2.HTTPError, TimeoutError) as error:
                logger.warning(
                    "could not refresh the token keys from %s; the old keys stay: %s: %s",
                    self._source,
                    type(error).__name__,
                    error,
                )
                return
            if not keys:
                logger.warning("no usable key in %s; the old keys stay", self._source)
                return
            self._keys = keys

    async def _fetch(self, source: str | Path) -> Mapping[str, Any]:
        if isinstance(source, Path):
            return await asyncio.to_thread(_read, source)
        async with (
            asyncio.timeout(self._timeout_seconds),
            httpx2.AsyncClient(timeout=self._timeout_seconds, follow_redirects=False) as client,
            client.stream("GET", source, headers={"Accept": "application/json"}) as response,
        ):
            if response.status_code != HTTPStatus.OK:
                raise ConfigurationError(f"it answered {response.status_code}")
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _LARGEST_SET:
                    raise ConfigurationError(f"it is larger than {_LARGEST_SET} bytes")
        return _parse(bytes(body))


def _require_safe(url: str) -> None:
    """Raise ``ConfigurationError`` unless the keys come over https or from this machine."""
    parts = urlsplit(url)
    authority = parse_authority(parts.netloc)
    is_local = authority is not None and authority.is_loopback
    if parts.scheme == "https" and authority is not None:
        return
    if parts.scheme != "http" or not is_local:
        raise ConfigurationError(
            f"jwks is {url!r}; give an https:// address (http:// only on this machine), a Path to "
            "a file, or the set itself"
        )


def _read(path: Path) -> Mapping[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"the JWKS file {path} can't be read: {error.strerror}") from error
    return _parse(content)


def _parse(content: bytes) -> Mapping[str, Any]:
    try:
        found: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigurationError(f"the JWKS is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigurationError("the JWKS is not a JSON object")
    return cast(dict[str, Any], found)


def _usable(document: Mapping[str, Any]) -> tuple[VerifyingKey, ...]:
    entries: Any = document.get("keys")
    if not isinstance(entries, Sequence) or isinstance(entries, (str, bytes)):
        raise ConfigurationError("the JWKS has no list of keys")
    listed = cast(Sequence[Any], entries)
    if len(listed) > _MOST_KEYS:
        raise ConfigurationError(f"the JWKS has {len(listed)} keys, more than {_MOST_KEYS}")
    keys = (_verifying_key(entry) for entry in listed)
    return tuple(key for key in keys if key is not None)


def _verifying_key(entry: Any) -> VerifyingKey | None:
    """Return a key of the set; None if it is for encryption, secret, weak or of an unknown kind."""
    if not isinstance(entry, Mapping):
        return None
    jwk = dict(cast(Mapping[str, Any], entry))
    kind = (jwk.get("kty"), None if jwk.get("kty") == "RSA" else jwk.get("crv"))
    kid, algorithm = jwk.get("kid"), jwk.get("alg")
    if kind not in KEY_KINDS.values() or jwk.get("use", "sig") != "sig":
        return None
    if algorithm is not None and KEY_KINDS.get(str(algorithm)) != kind:
        return None
    # A private key was published by mistake: its signatures can't be trusted.
    if "d" in jwk or not isinstance(kid, str | None):
        logger.warning("ignored key %r of the JWKS: it is private, or its id is not text", kid)
        return None
    try:
        key: Any = jwt.PyJWK(jwk).key
    except (jwt.PyJWTError, ValueError, TypeError) as error:
        logger.warning("ignored key %r of the JWKS: %s", kid, error)
        return None
    if isinstance(key, RSAPublicKey) and key.key_size < _SMALLEST_RSA:
        logger.warning("ignored key %r of the JWKS: RSA needs %d bits", kid, _SMALLEST_RSA)
        return None
    return VerifyingKey(kid, cast(Any, kind), algorithm, key)
