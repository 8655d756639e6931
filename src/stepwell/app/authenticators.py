"""Makes the authenticator that the configuration describes."""

from stepwell.app.config import AuthConfig, AuthMode
from stepwell.clock import Clock
from stepwell.errors import ConfigurationError
from stepwell.server.auth import (
    ApiKeys,
    Authenticator,
    ClaimNames,
    DevAuthenticator,
    JwtAuthenticator,
    KeyRing,
    several,
)


def authenticator_for(auth: AuthConfig, keys: KeyRing, clock: Clock) -> Authenticator:
    """Return the authenticator for the configured mode."""
    if auth.mode is AuthMode.DEV:
        return DevAuthenticator()
    if auth.mode is AuthMode.KEYS:
        return ApiKeys(keys)
    jwks_url, issuer, audience = auth.jwks_url, auth.issuer, auth.audience
    if not jwks_url or not issuer or not audience:
        missing = [name for name in ("jwks_url", "issuer", "audience") if not getattr(auth, name)]
        are, them = ("is", "it") if len(missing) == 1 else ("are", "them")
        variables = ", ".join(f"STEPWELL_AUTH__{name.upper()}" for name in missing)
        raise ConfigurationError(
            f"auth.mode is jwt, but {', '.join(missing)} {are} not set; set {them} in [auth], "
            f"or set {variables}"
        )
    claims = ClaimNames(
        user=auth.user_claim,
        tenant=auth.tenant_claim,
        admin=auth.admin_claim,
        roles=auth.roles_claim,
    )
    tokens = JwtAuthenticator(
        jwks_url, issuer=issuer, audience=audience, claims=claims, clock=clock
    )
    # Users with a token may create keys, for programs and for the page.
    return several(tokens, ApiKeys(keys))
