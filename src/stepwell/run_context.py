"""Whose run it is, and what the application gives to it: principal, session, related object, deps.

The host of a run makes a ``RunContext`` when the run begins. It travels with the state while the
run lasts, so that tools, hooks, criteria and prompts can read it, and is never serialized: the app
server stores the principal with the execution and makes the rest again for each attempt.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct

if TYPE_CHECKING:  # `ToolContext` without brackets is `ToolContext[Any]`
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)
    Output = TypeVar("Output", default=Any)
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")
    Output = TypeVar("Output")

DEFAULT_TENANT = "default"


class Principal(Struct, frozen=True, kw_only=True):
    """A person or a program that signed in.

    >>> ada = Principal(user_id="ada", roles=("staff",))
    >>> ada.tenant_id, ada.has_role("staff", "owner")
    ('default', True)
    """

    user_id: str
    tenant_id: str = DEFAULT_TENANT
    roles: tuple[str, ...] = ()
    """What the person is allowed to be, in the application's own words."""
    is_admin: bool = False
    """Sees everything in its own tenant, never another tenant's."""
    key_id: str | None = None
    """The API key that was used, if one was."""
    claims: Mapping[str, Any] = {}
    """What else the authenticator knows, for the application's own ``authorize``."""

    def has_role(self, *roles: str) -> bool:
        """Whether the principal has at least one of these roles."""
        return any(role in self.roles for role in roles)


class SessionInfo(Struct, frozen=True, kw_only=True):
    """The session that a run belongs to."""

    id: str
    title: str | None = None
    metadata: Mapping[str, Any] = {}


class RelatedObject(Struct, frozen=True, kw_only=True):
    """The domain object or page that a message is about, as the application's resolver returned it.

    >>> RelatedObject(type="order", id="17", data={"total": 25}).data["total"]
    25
    """

    type: str | None = None
    id: str | None = None
    url: str | None = None
    data: Any = None
    """What the resolver knows of the object; loaded for each attempt, never stored."""


class RunContext(Struct, Generic[Deps], frozen=True, kw_only=True, eq=False):
    """Who a run acts for, and what the application gave to it."""

    principal: Principal | None = None
    session: SessionInfo | None = None
    related: RelatedObject | None = None
    resources: Any = None
    """What the lifespan of the application yielded; shared by all runs of a process."""
    deps: Deps = None  # pyright: ignore[reportAssignmentType] - a run without deps


NO_CONTEXT: RunContext[Any] = RunContext()
