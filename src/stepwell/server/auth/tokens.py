"""Signs in with JSON Web Tokens of an identity provider, verified with its public keys."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jwt
from msgspec import Struct
from starlette.requests import HTTPConnection

from stepwell.clock import Clock, SystemClock
from stepwell.errors import ConfigurationError
from stepwell.server.auth.headers import bearer
from stepwell.server.auth.jwks import KEY_KINDS, KeySet, KeySource
from stepwell.sessions.principal import DEFAULT_TENANT, Principal

DEFAULT_ALGORITHMS = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "EdDSA")
_LONGEST_ID = 200


class ClaimNames(Struct, frozen=True, kw_only=True):
    """The claims that identify the user. A name may be a path (``realm_access.roles``).

    Without ``tenant`` everybody is in the default tenant; with it, a token without the claim is
    refused. A user with ``admin_value``, or true, in ``admin`` is an administrator of their tenant.
    """

    user: str = "sub"
    tenant: str | None = None
    admin: str | None = None
    admin_value: str = "admin"
    roles: str | None = None
    """The claim that lists the roles; a text is one role, or several with spaces between."""


_USUAL_CLAIMS = ClaimNames()


class JwtAuthenticator:
    """Accepts tokens of one issuer for one audience, signed with a key of its set.

    Only public-key algorithms are allowed: with a shared-key algorithm the published key would be
    the secret. Keys come from ``jwks``, never from an address in a token (``jku``, ``x5u``).
    """

    def __init__(
        self,
        jwks: KeySource,
        *,
        issuer: str,
        audience: str | Sequence[str],
        algorithms: Sequence[str] = DEFAULT_ALGORITHMS,
        claims: ClaimNames = _USUAL_CLAIMS,
        leeway_seconds: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        unfit = [name for name in algorithms if name not in KEY_KINDS]
        if unfit or not algorithms:
            raise ConfigurationError(
                f"algorithms has {', '.join(unfit) or 'nothing'}; with public keys these can be "
                f"used: {', '.join(KEY_KINDS)}"
            )
        self._audiences = [audience] if isinstance(audience, str) else list(audience)
        if not issuer or not self._audiences or not all(self._audiences):
            raise ConfigurationError(
                "a JwtAuthenticator needs the issuer and the audience: without them tokens that "
                "were made for others would be accepted"
            )
        self._issuer = issuer
        self._algorithms = tuple(algorithms)
        self._claims = claims
        self._leeway = leeway_seconds
        self._clock = clock or SystemClock()
        self.keys = KeySet(jwks, clock=self._clock)

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return the principal of the token."""
        token = bearer(request)
        # An API key has no dots; a token has two.
        if token is None or token.count(".") != 2:
            return None
        claims = await self._verify(token)
        if claims is None or not self._is_in_time(claims):
            return None
        return _principal(claims, self._claims)

    async def _verify(self, token: str) -> Mapping[str, Any] | None:
        try:
            header: Mapping[str, Any] = jwt.get_unverified_header(token)
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in self._algorithms or not _is_short_text(kid) or "crit" in header:
            return None
        found = await self.keys.find(kid, algorithm)
        if found is None:
            return None
        try:
            return cast(
                Mapping[str, Any],
                jwt.decode(
                    token,
                    found.key,
                    # One that is allowed and that fits the key.
                    algorithms=[algorithm],
                    issuer=self._issuer,
                    audience=self._audiences,
                    options={
                        "require": ["exp", "iss", "aud"],
                        # Checked below with the injected clock.
                        "verify_exp": False,
                        "verify_nbf": False,
                        "verify_iat": False,
                    },
                ),
            )
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError):
            return None

    def _is_in_time(self, claims: Mapping[str, Any]) -> bool:
        now = self._clock.now().timestamp()
        expires, begins = _seconds(claims.get("exp")), _seconds(claims.get("nbf", 0))
        return (
            expires is not None
            and begins is not None
            and now < expires + self._leeway
            and now >= begins - self._leeway
        )


def has_expired(principal: Principal, clock: Clock) -> bool:
    """Whether the token that they signed in with has expired; false if it has no ``exp``."""
    expires = _seconds(principal.claims.get("exp"))
    return expires is not None and clock.now().timestamp() >= expires


def _principal(claims: Mapping[str, Any], names: ClaimNames) -> Principal | None:
    user = _claim(claims, names.user)
    tenant = DEFAULT_TENANT if names.tenant is None else _claim(claims, names.tenant)
    if not _is_id(user) or not _is_id(tenant):
        return None
    return Principal(
        user_id=user,
        tenant_id=tenant,
        roles=_roles(claims, names),
        is_admin=_is_admin(claims, names),
        claims=claims,
    )


def _roles(claims: Mapping[str, Any], names: ClaimNames) -> tuple[str, ...]:
    listed: Any = None if names.roles is None else _claim(claims, names.roles)
    if isinstance(listed, str):
        listed = listed.split()
    if not isinstance(listed, list):
        return ()
    return tuple([role for role in cast("list[Any]", listed) if isinstance(role, str)])


def _is_admin(claims: Mapping[str, Any], names: ClaimNames) -> bool:
    if names.admin is None:
        return False
    said = _claim(claims, names.admin)
    if isinstance(said, list):
        return names.admin_value in said
    return said is True or said == names.admin_value


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """The claim of that name, or at that path; names that are addresses have dots as well."""
    if name in claims:
        return claims[name]
    found: Any = claims
    for part in name.split("."):
        if not isinstance(found, Mapping):
            return None
        found = cast(Mapping[str, Any], found).get(part)
    return found


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value.strip()) <= _LONGEST_ID and value.isprintable()


def _is_short_text(value: Any) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= _LONGEST_ID)


def _seconds(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None
