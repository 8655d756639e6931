"""Signs everybody on this machine in, for development; nobody else, whatever the bind address."""

from starlette.requests import HTTPConnection

from stepwell.server.auth.headers import only_header
from stepwell.server.auth.hosts import is_loopback_address, parse_authority
from stepwell.sessions.principal import DEFAULT_TENANT, Principal

_LONGEST_NAME = 200
_OF_PROXIES = ("forwarded", "true-client-ip", "via", "x-client-ip", "x-real-ip")
_BEGINNINGS_OF_PROXIES = ("cf-", "x-forwarded-")


class DevAuthenticator:
    """Signs everybody on this machine in as ``dev``, an administrator, or as the user named in
    ``X-Stepwell-User``, with the roles of ``X-Stepwell-Roles``, separated by commas. Such a user is
    an administrator only with ``is_admin``.

    The client's address and the Host header must be loopback: a page whose name was pointed at
    127.0.0.1 (DNS rebinding) still sends its own name as Host. Requests that a proxy forwarded, as
    its headers show, are refused.
    """

    def __init__(self, *, tenant_id: str = DEFAULT_TENANT, is_admin: bool = False) -> None:
        self._tenant_id = tenant_id
        self._is_admin = is_admin

    async def authenticate(self, request: HTTPConnection, /) -> Principal | None:
        """Return the developer, if the request comes from this machine."""
        if not _is_local(request) or _came_through_a_proxy(request):
            return None
        name, is_admin = "dev", True
        if "x-stepwell-user" in request.headers:
            is_admin = self._is_admin
            name = (only_header(request, "x-stepwell-user") or "").strip()
        if not name or len(name) > _LONGEST_NAME or not name.isprintable():
            return None
        roles = (only_header(request, "x-stepwell-roles") or "").split(",")
        return Principal(
            user_id=name,
            tenant_id=self._tenant_id,
            roles=tuple([role.strip() for role in roles if role.strip()]),
            is_admin=is_admin,
        )


def _came_through_a_proxy(request: HTTPConnection) -> bool:
    return any(
        name in _OF_PROXIES or name.startswith(_BEGINNINGS_OF_PROXIES) for name in request.headers
    )


def _is_local(request: HTTPConnection) -> bool:
    client = request.client
    host = parse_authority(only_header(request, "host") or "")
    return (
        client is not None
        and is_loopback_address(client.host)
        and host is not None
        and host.is_loopback
    )
