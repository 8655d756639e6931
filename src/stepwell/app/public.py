"""The public names of the app server, one list. ``app/__init__.py`` loads it when first needed."""

from stepwell.app.agent_app import AgentApp
from stepwell.app.config import (
    AuthConfig,
    AuthMode,
    Config,
    LogFormat,
    TelemetryConfig,
    load_config,
)
from stepwell.app.log_ids import RunIdsFilter
from stepwell.journal.status import ExecutionStatus
from stepwell.server.auth import (
    ApiKeys,
    Authenticator,
    ClaimNames,
    DevAuthenticator,
    JwtAuthenticator,
    KeyRing,
    several,
)
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.errors import (
    ConflictError,
    NotThereError,
    RefusedError,
    SessionError,
    TooManyError,
)
from stepwell.sessions.intake.contexts import AllowedContexts, Context, ContextResolver
from stepwell.sessions.intake.intake import NewMessage, NewSession, Sent
from stepwell.sessions.principal import Principal
from stepwell.sessions.records import (
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    SessionStatus,
    WhenBusy,
)
from stepwell.sessions.retention import RetentionPolicy
from stepwell.sessions.settings import SessionSettings, WhenChanged, WhenUnknown

__all__ = [
    "AgentApp",
    "AllowedContexts",
    "ApiKeys",
    "AuthConfig",
    "AuthMode",
    "Authenticator",
    "ClaimNames",
    "Config",
    "ConflictError",
    "Context",
    "ContextResolver",
    "DevAuthenticator",
    "Execution",
    "ExecutionStatus",
    "JwtAuthenticator",
    "KeyRing",
    "LogFormat",
    "MessageRole",
    "NewMessage",
    "NewSession",
    "NotThereError",
    "Principal",
    "RefusedError",
    "RetentionPolicy",
    "RunIdsFilter",
    "Sent",
    "ServerSettings",
    "Services",
    "Session",
    "SessionError",
    "SessionMessage",
    "SessionSettings",
    "SessionStatus",
    "TelemetryConfig",
    "TooManyError",
    "WhenBusy",
    "WhenChanged",
    "WhenUnknown",
    "load_config",
    "several",
]
