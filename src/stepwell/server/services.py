"""The services that routes and channels use; built by the app, found through the connection."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import cast

from msgspec import Struct, field
from starlette.requests import HTTPConnection

from stepwell.clock import Clock, SystemClock
from stepwell.ids import IdFactory, new_id
from stepwell.server.metrics import Metrics
from stepwell.server.settings import ServerSettings
from stepwell.server.write_probe import WriteProbe
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.intake.intake import Intake
from stepwell.sessions.ports import Store
from stepwell.sessions.requests.lifecycle import Lifecycle
from stepwell.sessions.views.reader import Reader

Check = Callable[[], Awaitable[str | None]]
"""A readiness check: returns None, or what is wrong in words."""


class Services(Struct, frozen=True, kw_only=True, eq=False):
    """The services. ``/ready`` runs ``checks``, by name."""

    store: Store
    agents: AgentDirectory
    intake: Intake
    lifecycle: Lifecycle
    reader: Reader
    authenticate: "_auth.Authenticator"
    keys: "_auth.KeyRing"
    feeds: "_feeds.Feeds"
    stream_tokens: "_tokens.StreamTokens"
    authorize: "_policy.Authorize | None" = None
    settings: ServerSettings = ServerSettings()
    clock: Clock = field(default_factory=SystemClock)
    new_id: IdFactory = new_id
    metrics: Metrics = field(default_factory=Metrics)
    checks: Mapping[str, Check] = {}
    write_probe: WriteProbe = field(default_factory=WriteProbe)
    page: Path | None = None
    """The folder with the files of the page; without it there is no page."""


def services_of(connection: HTTPConnection) -> Services:
    """Return the services of the app that serves this request or socket."""
    return cast(Services, connection.app.state.services)


# Behind the class, which these import; their types are looked up when someone asks for them.
import stepwell.server.auth as _auth  # noqa: E402
import stepwell.server.live.feeds as _feeds  # noqa: E402
import stepwell.server.live.tokens as _tokens  # noqa: E402
import stepwell.server.policy as _policy  # noqa: E402
