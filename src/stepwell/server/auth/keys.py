"""Creates, verifies and revokes API keys. The secret is shown once; only its hash is stored.

A secret has 256 random bits, so a fast hash is enough. Slow hashes are for passwords, which people
choose; here they would only make every request expensive.
"""

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace
from starlette.requests import HTTPConnection

from stepwell.clock import Clock, SystemClock
from stepwell.ids import IdFactory, new_id
from stepwell.server.auth.authenticator import Authenticator, SeveralAuthenticators
from stepwell.server.auth.headers import bearer, only_header
from stepwell.server.auth.refusals import NotAllowedError
from stepwell.sessions.errors import (
    ConflictError,
    NotThereError,
    RefusedError,
    StoreUnavailableError,
    TooManyError,
)
from stepwell.sessions.ports import ACCESS_TOPIC, Store, Transaction
from stepwell.sessions.principal import DEFAULT_TENANT, Principal
from stepwell.sessions.records import ApiKeyRecord

logger = logging.getLogger("stepwell.server")

_SHAPE = re.compile(r"sw_(?P<prefix>[a-z0-9]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_NOTED_EVERY = timedelta(minutes=1)
_LONGEST_NAME = 100
_LONGEST_USER = 200
MOST_KEYS = 100
"""The most valid keys of one user; revoked and expired ones do not count."""


class KeyRing:
    """The stored keys of all tenants."""

    def __init__(
        self, store: Store, clock: Clock | None = None, *, new_id: IdFactory = new_id
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._new_id = new_id
        self._noted: dict[str, datetime] = {}

    async def create(
        self,
        who: Principal,
        name: str,
        *,
        user_id: str | None = None,
        is_admin: bool = False,
        roles: Sequence[str] = (),
        expires_at: datetime | None = None,
    ) -> tuple[ApiKeyRecord, str]:
        """Create a key in the principal's tenant. Return it with its text, which is not stored.

        Only administrators create keys for others, keys of administrators, keys with roles that
        they lack, and keys while signed in with a key, which the new one could outlive. Raises
        ``TooManyError``."""
        owner = who.user_id if user_id is None else user_id
        if not who.is_admin and who.key_id is not None:
            raise NotAllowedError(
                "create a key while signed in with a key; sign in another way, or ask an "
                "administrator for one"
            )
        if not who.is_admin and (is_admin or owner != who.user_id):
            raise NotAllowedError("create a key for another user, or an administrator's")
        if not who.is_admin and not set(roles) <= set(who.roles):
            raise NotAllowedError("create a key with roles that you do not have")
        now = self._clock.now()
        _require_words("name", name, _LONGEST_NAME)
        _require_words("user_id", owner, _LONGEST_USER)
        for role in roles:
            _require_words("role", role, _LONGEST_NAME)
        if expires_at is not None and (expires_at.tzinfo is None or expires_at <= now):
            raise RefusedError(
                f"expires_at is {expires_at.isoformat()}; it needs a time zone and must lie ahead",
                code="bad_expiry",
            )
        prefix = "".join(secrets.choice(_LETTERS) for _ in range(12))
        secret = secrets.token_urlsafe(32)
        key = ApiKeyRecord(
            id=self._new_id(),
            tenant_id=who.tenant_id,
            user_id=owner,
            name=name,
            prefix=prefix,
            secret_hash=_hash(secret),
            created_at=now,
            is_admin=is_admin,
            expires_at=expires_at,
            roles=tuple(dict.fromkeys(roles)),
        )
        await self._store.write(lambda tx: _add(tx, key), name="create_key")
        return key, f"sw_{prefix}_{secret}"

    async def verify(self, text: str) -> Principal | None:
        """Return the owner of a key; None if it is unknown, wrong, revoked or expired."""
        shape = _SHAPE.fullmatch(text)
        if shape is None:
            return None
        prefix = shape["prefix"]
        key = await self._store.read(lambda tx: tx.api_key_by_prefix(prefix))
        # Always compared, so that the timing does not reveal which prefixes exist.
        expected = _NO_HASH if key is None else key.secret_hash
        is_right = hmac.compare_digest(_hash(shape["secret"]), expected)
        now = self._clock.now()
        if key is None or not is_right or not _is_valid(key, now):
            return None
        await self._note_use(key, now)
        return Principal(
            user_id=key.user_id,
            tenant_id=key.tenant_id,
            roles=key.roles,
            is_admin=key.is_admin,
            key_id=key.id,
        )

    async def is_valid(self, principal: Principal) -> bool:
        """Whether the key that they signed in with is still valid; true if they used no key."""
        if principal.key_id is None:
            return True
        key_id = principal.key_id
        keys = await self._store.read(lambda tx: tx.api_keys_by_id([key_id]))
        return self.is_good(principal, keys.get(key_id))

    def is_good(self, principal: Principal, key: ApiKeyRecord | None) -> bool:
        """Whether that row is the key that they signed in with, and still valid; true if they used
        no key."""
        if principal.key_id is None:
            return True
        return (
            key is not None
            and (key.id, key.tenant_id) == (principal.key_id, principal.tenant_id)
            and key.user_id == principal.user_id
            and _is_valid(key, self._clock.now())
        )

    async def list_keys(self, tenant_id: str, *, user_id: str | None = None) -> list[ApiKeyRecord]:
        """Return the keys of a tenant or of one of its users, including revoked ones."""
        return list(await self._store.read(lambda tx: tx.api_keys(tenant_id, user_id=user_id)))

    async def revoke(self, key_id: str, *, tenant_id: str = DEFAULT_TENANT) -> ApiKeyRecord:
        """Revoke a key and close the channels that were opened with it. Idempotent."""
        now = self._clock.now()

        async def work(tx: Transaction) -> ApiKeyRecord:
            keys = await tx.api_keys(tenant_id)
            key = next((one for one in keys if one.id == key_id), None)
            if key is None:
                raise NotThereError("key", key_id)
            if key.revoked_at is None:
                key = replace(key, revoked_at=now)
                await tx.save_api_key(key)
                tx.tell(ACCESS_TOPIC)
            return key

        return await self._store.write(work, name="revoke_key")

    async def _note_use(self, key: ApiKeyRecord, now: datetime) -> None:
        known = [at for at in (key.last_used_at, self._noted.get(key.id)) if at is not None]
        if known and now - max(known) < _NOTED_EVERY:
            return
        self._noted[key.id] = now

        async def work(tx: Transaction) -> None:
            # Read again, so that a revocation in between is not overwritten.
            fresh = await tx.api_key_by_prefix(key.prefix)
            if fresh is not None and fresh.revoked_at is None:
                await tx.save_api_key(replace(fresh, last_used_at=now))

        try:
            await self._store.write(work, name="key_used")
        except StoreUnavailableError as error:
            logger.warning("could not store the use of key %s: %s", key.id, error)


class ApiKeys:
    """Signs in with ``Authorization: Bearer sw_...`` or ``X-Api-Key: sw_...``."""

    accepts_keys = True

    def __init__(self, ring: KeyRing) -> None:
        self._ring = ring

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return the owner of the key that was sent; two different keys are invalid."""
        given = {bearer(request), only_header(request, "x-api-key")}
        keys = [one for one in given if one is not None and one.startswith("sw_")]
        return await self._ring.verify(keys[0]) if len(keys) == 1 else None


def accepts_keys(authenticator: Authenticator) -> bool:
    """Whether users can sign in with API keys. An authenticator of the application that verifies
    keys itself sets ``accepts_keys = True``."""
    if isinstance(authenticator, SeveralAuthenticators):
        return any(accepts_keys(one) for one in authenticator.authenticators)
    return getattr(authenticator, "accepts_keys", False) is True


def require_keys_accepted(authenticator: Authenticator) -> None:
    """Raise ``ConflictError`` if the server accepts no API keys."""
    if not accepts_keys(authenticator):
        raise ConflictError(
            "this server does not accept API keys, so it creates none: set auth.mode to keys or "
            "jwt, or give AgentApp an authenticator with accepts_keys = True that verifies them",
            code="keys_not_accepted",
        )


async def _add(tx: Transaction, key: ApiKeyRecord) -> None:
    # The write may be repeated after a fault at its commit.
    if await tx.api_key_by_prefix(key.prefix) is not None:
        return
    theirs = await tx.api_keys(key.tenant_id, user_id=key.user_id)
    if sum(_is_valid(one, key.created_at) for one in theirs) >= MOST_KEYS:
        raise TooManyError(
            f"{key.user_id} has {MOST_KEYS} keys, the most that a user may have; "
            "revoke one of them",
            code="too_many_keys",
        )
    await tx.add_api_key(key)


def _is_valid(key: ApiKeyRecord, now: datetime) -> bool:
    return key.revoked_at is None and (key.expires_at is None or now < key.expires_at)


def _require_words(field: str, text: str, longest: int) -> None:
    if not text.strip() or len(text) > longest or not text.isprintable():
        raise RefusedError(
            f"{field} must be 1 to {longest} printable characters, got {text[:longest]!r}",
            code=f"bad_{field}",
        )


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


_NO_HASH = _hash("")
