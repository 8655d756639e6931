"""The settings of the server: limits, hosts and origins, rates, the Pusher application."""

from math import inf

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.sessions.principal import DEFAULT_TENANT

MIB = 1024 * 1024
SHORTEST_SECRET = 32
MAKE_A_SECRET = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"
"""A command that prints a secret."""


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings of the HTTP server; the defaults suit a server on one machine.

    >>> ServerSettings(max_body_bytes=0)
    Traceback (most recent call last):
    ...
    stepwell.errors.ConfigurationError: max_body_bytes must be 1 or more, got 0
    """

    max_body_bytes: int = MIB
    body_seconds: float = 30.0
    """Seconds for a body to arrive."""
    max_json_depth: int = 32
    max_json_items: int = 10_000
    """Members of all objects and lists in one body."""
    max_connections: int = 1000
    """Connections of one process, including streams and sockets; fewer if it may not open so many
    files. Beyond that, ``stepwell serve`` closes the connection that has been idle longest; if none
    is idle, it responds to health checks only."""
    head_seconds: float = 10.0
    """Seconds for the head of a request to arrive, in ``stepwell serve``."""
    sends_per_second: float = 20.0
    """Per user and process: messages, new sessions, forks, answers, keys."""
    send_burst: int = 40
    page_size: int = 50
    max_page_size: int = 200
    page: bool = True
    """Whether to serve Stepwell's page at ``/``."""
    worker_grace_seconds: float = 30.0
    """Seconds after which unclaimed work means that there is no worker."""
    allowed_hosts: tuple[str, ...] = ()
    """Allowed values of the Host header; if empty, the app chooses."""
    allowed_origins: tuple[str, ...] = ()
    """Origins whose pages may call the server, besides its own."""
    live_buffer_bytes: int = MIB
    """Bytes of a session's newest events that are kept in memory for its followers; a follower that
    is further behind reads the database."""
    live_cut_seconds: float = 8.0
    """Seconds without progress after which a slow live reader is disconnected."""
    live_connections_per_user: int = 50
    waiting_sockets_per_address: int = 50
    """Sockets of one client address that have not joined a channel yet; a quarter of
    ``max_connections`` for all addresses."""
    socket_join_seconds: float = 10.0
    """Seconds that a socket may stay without a channel; joining one authenticates it."""
    ping_seconds: float = 15.0
    openai_api: bool = True
    """Whether OpenAI clients may talk to the agents, at ``/v1/``."""
    cancel_on_disconnect: bool = True
    """Whether a run is cancelled when the AI SDK, AG-UI or OpenAI client that follows it
    disconnects, which is how these clients stop a run."""
    reconnect_seconds: float = 3.0
    """How long such a client may take to follow its run again, as a reloaded page does."""
    live_claims: tuple[str, ...] = ()
    """Claims of a principal that go into stream tokens and channel signatures, where browsers can
    read them, so that ``authorize`` has them for live channels as well."""
    metrics_tenant: str = DEFAULT_TENANT
    """The tenant whose administrators may read ``/metrics``, which covers all tenants."""
    app_key: str = "stepwell"
    app_secret: str = ""
    """Signs private channels; if empty, the app generates one."""

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
        """Leave out the secret: settings end up in logs."""
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
    "reconnect_seconds",
    "socket_join_seconds",
)
