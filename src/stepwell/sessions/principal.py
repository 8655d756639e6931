"""Who asks: made by an authenticator, checked by the policy table, noted with what is done."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

DEFAULT_TENANT = "default"


class Principal(Struct, frozen=True, kw_only=True):
    """A person or a program that signed in.

    >>> Principal(user_id="ada").tenant_id
    'default'
    """

    user_id: str
    tenant_id: str = DEFAULT_TENANT
    is_admin: bool = False
    """Sees all of its own tenant, never another tenant's."""
    key_id: str | None = None
    """The API key that was used, if one was."""
    claims: Mapping[str, Any] = {}
    """What else the authenticator knows, for the application's own ``authorize``."""
