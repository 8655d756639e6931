"""Guards every route and channel: authenticates, loads what the path names, and authorizes.

An object of somebody else gets the same response as one that does not exist, after the same
look-ups.
"""

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, assert_never

from msgspec import Struct
from starlette.requests import HTTPConnection

from stepwell.clock import Clock
from stepwell.errors import ConfigurationError
from stepwell.server.auth.authenticator import Authenticator
from stepwell.server.auth.keys import KeyRing
from stepwell.server.auth.refusals import NotAllowedError, NotSignedInError
from stepwell.server.auth.tokens import has_expired
from stepwell.server.policy.table import FOLLOW, Needs, Of, Policy
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import NotThereError
from stepwell.sessions.ports import Store, Transaction
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import ApiKeyRecord, Execution, Session, Snapshot
from stepwell.sessions.views.removed_snapshots import require_states

Authorize = Callable[[Principal, str, Session | Execution | None], bool | Awaitable[bool]]
"""A rule of the application in addition to ours; false or a ``PermissionError`` denies."""

_NOBODYS_ID = "00000000-0000-0000-0000-000000000000"
_LONGEST_ID = 64


class Guarded(Protocol):
    """The services that the guard uses."""

    @property
    def store(self) -> Store:
        """The store."""
        ...

    @property
    def authenticate(self) -> Authenticator:
        """The authenticator."""
        ...

    @property
    def authorize(self) -> Authorize | None:
        """The rule of the application, if it has one."""
        ...

    @property
    def keys(self) -> KeyRing:
        """The API keys."""
        ...

    @property
    def settings(self) -> ServerSettings:
        """The settings, which name the operators' tenant."""
        ...

    @property
    def clock(self) -> Clock:
        """The clock, for the expiry of tokens."""
        ...


class Access(Struct, frozen=True, kw_only=True):
    """The principal and the objects that the path names, loaded and authorized."""

    principal: Principal
    session: Session | None = None
    execution: Execution | None = None
    snapshot: Snapshot | None = None
    """Without the documents of its chain; the reader loads the whole state."""
    key: ApiKeyRecord | None = None


class _Found(Struct, frozen=True, kw_only=True):
    session: Session | None = None
    execution: Execution | None = None
    snapshot: Snapshot | None = None
    key: ApiKeyRecord | None = None


async def access(connection: HTTPConnection) -> Access:
    """Authorize a request; the dependency of every route that is not public."""
    services: Guarded = connection.scope["app"].state.services
    policy = _policy_of(connection)
    principal = await services.authenticate.authenticate(connection)
    if principal is None:
        raise NotSignedInError
    if policy.action == FOLLOW.action and not await _is_still_signed_in(services, principal):
        # A stream token may outlive the key that it was created with.
        raise NotSignedInError
    if policy.needs is Needs.OPERATOR and not _is_operator(principal, services.settings):
        raise NotAllowedError(policy.action)
    return await _admit(services, policy, principal, connection.path_params)


async def may_follow(services: Guarded, principal: Principal, session_id: str) -> bool:
    """Whether they may follow the events of a session. Checked when a channel is joined, and again
    whenever access may have changed: a revoked key or an expired token ends it."""
    if not await _is_still_signed_in(services, principal):
        return False
    try:
        await _admit(services, FOLLOW, principal, {"session_id": session_id})
    except (NotThereError, NotAllowedError):
        return False
    return True


async def may_still_follow(
    services: Guarded, principal: Principal, session: Session, key: ApiKeyRecord | None
) -> bool:
    """Whether they may still follow a session, given its row and that of their key, if they used
    one."""
    if has_expired(principal, services.clock) or not services.keys.is_good(principal, key):
        return False
    if not _is_theirs(session, principal):
        return False
    try:
        await _authorize(services.authorize, FOLLOW.action, principal, _Found(session=session))
    except NotAllowedError:
        return False
    return True


async def require(
    services: Guarded, principal: Principal, action: str, of: Session | Execution | None = None
) -> None:
    """Check a further action of a route with the application's rule, on a session or execution that
    is known to be theirs. Raises ``NotAllowedError``."""
    found = _Found(session=of) if isinstance(of, Session) else _Found(execution=of)
    await _authorize(services.authorize, action, principal, found)


def _is_operator(principal: Principal, settings: ServerSettings) -> bool:
    return principal.is_admin and principal.tenant_id == settings.metrics_tenant


async def _is_still_signed_in(services: Guarded, principal: Principal) -> bool:
    return not has_expired(principal, services.clock) and await services.keys.is_valid(principal)


def _policy_of(connection: HTTPConnection) -> Policy:
    scope = connection.scope
    method = scope["method"] if scope["type"] == "http" else "WEBSOCKET"
    method = "GET" if method == "HEAD" else method
    policies: Mapping[Any, Policy] = getattr(scope["app"].state, "policies", {})
    policy = policies.get((method, scope["endpoint"]))
    if policy is None:
        raise ConfigurationError(
            f"{method} {scope['path']} has no policy: add it to stepwell.server.policy.table, and "
            "call check_policies(app) when all routes are there"
        )
    return policy


async def _admit(
    services: Guarded, policy: Policy, principal: Principal, path: Mapping[str, Any]
) -> Access:
    found = _Found()
    if policy.of is not Of.NONE:
        found = await services.store.read(lambda tx: _load(tx, policy.of, principal, path))
        _require_theirs(policy.of, found, principal, path)
    await _authorize(services.authorize, policy.action, principal, found)
    return Access(
        principal=principal,
        session=found.session,
        execution=found.execution,
        snapshot=found.snapshot,
        key=found.key,
    )


async def _load(tx: Transaction, of: Of, principal: Principal, path: Mapping[str, Any]) -> _Found:
    match of:
        case Of.SESSION:
            return _Found(session=await tx.session(_id(path, "session_id")))
        case Of.EXECUTION:
            return await _execution(tx, _id(path, "execution_id"))
        case Of.SNAPSHOT:
            snapshot = await tx.snapshot(_id(path, "snapshot_id"))
            found = await _execution(tx, _id(path, "execution_id"))
            return _Found(session=found.session, execution=found.execution, snapshot=snapshot)
        case Of.KEY:
            whose = None if principal.is_admin else principal.user_id
            keys = await tx.api_keys(principal.tenant_id, user_id=whose)
            wanted = _id(path, "key_id")
            return _Found(key=next((key for key in keys if key.id == wanted), None))
        case Of.NONE:
            return _Found()
        case _:
            assert_never(of)


async def _execution(tx: Transaction, execution_id: str) -> _Found:
    execution = await tx.execution(execution_id)
    # Always looked up, so that a missing execution takes as long as a foreign one.
    session_id = None if execution is None else execution.session_id
    session = await tx.session(session_id or _NOBODYS_ID)
    return _Found(session=session, execution=execution)


def _id(path: Mapping[str, Any], name: str) -> str:
    """Return the id in the path; an impossible one becomes an id that nobody has."""
    given = str(path[name])
    fits = len(given) <= _LONGEST_ID and given.isascii() and given.isprintable()
    return given if fits else _NOBODYS_ID


def _not_there(kind: str, path: Mapping[str, Any]) -> NotThereError:
    return NotThereError(kind, str(path[f"{kind}_id"])[:_LONGEST_ID])


def _require_theirs(of: Of, found: _Found, principal: Principal, path: Mapping[str, Any]) -> None:
    match of:
        case Of.SESSION:
            session = found.session
            if session is None or not _is_theirs(session, principal):
                raise _not_there("session", path)
        case Of.EXECUTION | Of.SNAPSHOT:
            if not _is_their_execution(found, principal):
                raise _not_there("execution", path)
            if of is Of.SNAPSHOT and not _belongs(found):
                if found.execution is not None:
                    require_states(found.execution)
                raise _not_there("snapshot", path)
        case Of.KEY:
            key = found.key
            if key is None or not _is_theirs(key, principal):
                raise _not_there("key", path)
        case Of.NONE:
            return
        case _:
            assert_never(of)


def _is_theirs(thing: Session | Execution | ApiKeyRecord, principal: Principal) -> bool:
    return thing.tenant_id == principal.tenant_id and (
        principal.is_admin or thing.user_id == principal.user_id
    )


def _is_their_execution(found: _Found, principal: Principal) -> bool:
    """Whether the execution is theirs: by its session's user, or its own if it has no session."""
    execution = found.execution
    if execution is None:
        return False
    if execution.session_id is None:
        return _is_theirs(execution, principal)
    return (
        found.session is not None
        and execution.tenant_id == principal.tenant_id
        and _is_theirs(found.session, principal)
    )


def _belongs(found: _Found) -> bool:
    snapshot, execution = found.snapshot, found.execution
    return (
        snapshot is not None
        and execution is not None
        and snapshot.agent_execution_id == execution.id
        and snapshot.tenant_id == execution.tenant_id
    )


async def _authorize(
    rule: Authorize | None, action: str, principal: Principal, found: _Found
) -> None:
    if rule is None:
        return
    try:
        verdict = rule(principal, action, found.execution or found.session)
        allowed = await verdict if inspect.isawaitable(verdict) else verdict
    except PermissionError as denied:
        raise NotAllowedError(action) from denied
    if not allowed:
        raise NotAllowedError(action)
