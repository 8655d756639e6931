"""What routes and channels work with: put together by the app, reached through the connection."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from msgspec import Struct, field
from starlette.requests import HTTPConnection

from stepwell.clock import Clock, SystemClock
from stepwell.ids import IdFactory, new_id
from stepwell.server.metrics import Metrics
from stepwell.server.settings import ServerSettings
from stepwell.server.write_probe import WriteProbe
from stepwell.sessions.ports import Store

if TYPE_CHECKING:
    # Only named here: these modules themselves take Services.
    from stepwell.server.auth import Authenticator, KeyRing
    from stepwell.server.live.feed import Feeds
    from stepwell.server.live.tokens import StreamTokens
    from stepwell.server.policy import Authorize
    from stepwell.sessions.directory import AgentDirectory
    from stepwell.sessions.intake.intake import Intake
    from stepwell.sessions.requests.lifecycle import Lifecycle
    from stepwell.sessions.views.reader import Reader

Check = Callable[[], Awaitable[str | None]]
"""Whether something is ready: None, or in words what it lacks."""


class Services(Struct, frozen=True, kw_only=True, eq=False):
    """Everything behind the door. ``checks`` are asked by ``/ready``, by name."""

    store: Store
    agents: "AgentDirectory"
    intake: "Intake"
    lifecycle: "Lifecycle"
    reader: "Reader"
    authenticate: "Authenticator"
    keys: "KeyRing"
    feeds: "Feeds"
    stream_tokens: "StreamTokens"
    authorize: "Authorize | None" = None
    settings: ServerSettings = ServerSettings()
    clock: Clock = field(default_factory=SystemClock)
    new_id: IdFactory = new_id
    metrics: Metrics = field(default_factory=Metrics)
    checks: Mapping[str, Check] = {}
    write_probe: WriteProbe = field(default_factory=WriteProbe)
    page: Path | None = None
    """The folder with what browsers are given; without one there is no page."""


def services_of(connection: HTTPConnection) -> Services:
    """The services of the app that serves this request or socket, wherever it is mounted."""
    return cast(Services, connection.app.state.services)
