"""What can be set about the server: limits, hosts and origins, rates, the Pusher application."""

from math import inf

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.sessions.principal import DEFAULT_TENANT

MIB = 1024 * 1024
SHORTEST_SECRET = 32
MAKE_A_SECRET = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
"""A command that prints one."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """How the HTTP door behaves; the defaults suit a server on one machine.

    >>> ServerSettings(max_body_bytes=0)
    Traceback (most recent call last):
    ...
    stepwell.errors.ConfigurationError: max_body_bytes must be 1 or more, got 0
    """

    max_body_bytes: int = MIB
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    max_json_depth: int = 32
    max_json_items: int = 10_000
    """Members of objects and lists in one body, all together."""
    max_connections: int = 1000
    """Of one process, streams and sockets as well, and fewer where it may not open so many files.
    For one more, ``stepwell serve`` hangs up on the connection that has asked for nothing for the
    longest; without such a one only health checks are answered."""
    head_seconds: float = 10.0
    """How long the head of a request may take to arrive, for ``stepwell serve``."""
    sends_per_second: float = 20.0
    """Per user and process: messages, new sessions, forks, answers, keys."""
    send_burst: int = 40
    page_size: int = 50
    max_page_size: int = 200
    page: bool = True
    """Whether browsers are given the page that comes with Stepwell, at ``/``."""
    worker_grace_seconds: float = 30.0
    """Work that nobody has taken up for so long means that there is no worker."""
    allowed_hosts: tuple[str, ...] = ()
    """Values of the Host header that are answered; empty leaves the choice to the app."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may call; empty means only the server's own."""
    live_buffer_bytes: int = MIB
    """What of a session's newest events is kept in memory for its followers; who is further behind
    reads the database."""
    live_cut_seconds: float = 8.0
    """How long a live reader may accept nothing before it is cut."""
    live_connections_per_user: int = 50
    waiting_sockets_per_address: int = 50
    """Sockets of one client address that have not joined a channel yet. All addresses together may
    have a quarter of ``max_connections``."""
    socket_join_seconds: float = 10.0
    """How long a socket may stay without a channel; until then nobody has signed in on it."""
    ping_seconds: float = 15.0
    live_claims: tuple[str, ...] = ()
    """Which claims of a principal are signed into stream tokens and channel signatures, where
    browsers can read them, so that ``authorize`` is given them for live channels as well."""
    metrics_tenant: str = DEFAULT_TENANT
    """Whose administrators may read ``/metrics``, which counts all tenants together."""
    app_key: str = "stepwell"
    app_secret: str = ""
    """Signs private channels; empty means that the app makes one."""

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be 1 or more, got {getattr(self, name)!r}")
        for name in _DURATIONS:
            if not 0 < getattr(self, name) < inf:
                raise ConfigurationError(f"{name} must be above zero, got {getattr(self, name)!r}")
        if self.page_size > self.max_page_size:
            raise ConfigurationError(
                f"page_size is {self.page_size}, more than max_page_size, {self.max_page_size}"
            )
        if 0 < len(self.app_secret) < SHORTEST_SECRET:
            raise ConfigurationError(
                f"app_secret has {len(self.app_secret)} characters; it must have "
                f"{SHORTEST_SECRET} or more and be random. Make one with: {MAKE_A_SECRET}"
            )

    def __repr__(self) -> str:
        """Without the secret: settings end up in logs."""
        shown = (
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name != "app_secret"
        )
        return f"ServerSettings({', '.join(shown)})"


_COUNTS = (
    "max_body_bytes",
    "max_json_depth",
    "max_json_items",
    "max_connections",
    "send_burst",
    "page_size",
    "max_page_size",
    "live_buffer_bytes",
    "live_connections_per_user",
    "waiting_sockets_per_address",
)
_DURATIONS = (
    "body_seconds",
    "head_seconds",
    "sends_per_second",
    "worker_grace_seconds",
    "live_cut_seconds",
    "ping_seconds",
    "socket_join_seconds",
)
