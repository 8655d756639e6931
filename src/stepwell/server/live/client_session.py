"""The session behind a client's own id for it: the chat of an AI SDK client, the thread of an AG-UI
client, the name in the header of an OpenAI client."""

import re
from typing import TYPE_CHECKING

from msgspec import Struct

from stepwell.server.policy import require
from stepwell.sessions.ids import derived_id
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import Session

if TYPE_CHECKING:
    from stepwell.server.services import Services

_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ClientSession(Struct, frozen=True):
    """The id of the session that a client means, and the session if it exists."""

    id: str | None
    found: Session | None


UNNAMED = ClientSession(None, None)


def client_session_id(who: Principal, protocol: str, name: str) -> str:
    """Return the id of the session that this principal's clients call by that name. Others who use
    the same name get another session.

    >>> ada, bob = Principal(user_id="ada"), Principal(user_id="bob")
    >>> client_session_id(ada, "ai-sdk", "c1") == client_session_id(bob, "ai-sdk", "c1")
    False
    """
    return derived_id(who.tenant_id, "client session", who.user_id, protocol, name)


async def find_client_session(
    services: "Services", who: Principal, protocol: str, name: str, action: str = "messages.send"
) -> ClientSession:
    """Find the session by the id of one of the principal's own sessions, or else by a name that the
    client made up. Raises ``NotAllowedError`` if the application's own rule forbids the action."""
    named = client_session_id(who, protocol, name)
    ids = [name, named] if _SESSION_ID.fullmatch(name) else [named]
    rows = await services.store.read(lambda tx: tx.sessions_by_id(ids))
    for id in ids:
        session = rows.get(id)
        if session is not None and _is_own(session, who):
            await require(services, who, action, session)
            return ClientSession(session.id, session)
    return ClientSession(named, None)


def _is_own(session: Session, who: Principal) -> bool:
    """Whether it is theirs; that of somebody else is not, not even for an administrator."""
    return (session.tenant_id, session.user_id) == (who.tenant_id, who.user_id)
