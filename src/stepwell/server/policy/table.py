"""The policy table: what each route and channel requires. Nothing else decides who may do what.

The server does not start if a route has no policy, or a policy has no route.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

from msgspec import Struct

RouteKey = tuple[str, str]
"""Method (or ``WEBSOCKET``, ``MOUNT``) and path template of a route."""


class Needs(StrEnum):
    """Who may pass."""

    PUBLIC = "public"
    SIGNED_IN = "signed_in"
    OWNER = "owner"
    """The owner, or an administrator of the same tenant."""
    OPERATOR = "operator"
    """An administrator of the tenant that runs the server, ``ServerSettings.metrics_tenant``."""


class Of(StrEnum):
    """The object that the path names, whose owner counts."""

    NONE = "none"
    SESSION = "session"
    EXECUTION = "execution"
    SNAPSHOT = "snapshot"
    KEY = "key"


class Policy(Struct, frozen=True):
    """What a route or channel requires; ``action`` is passed to the application's ``authorize``."""

    needs: Needs
    action: str
    of: Of = Of.NONE


def _public(action: str) -> Policy:
    return Policy(Needs.PUBLIC, action)


def _signed_in(action: str) -> Policy:
    return Policy(Needs.SIGNED_IN, action)


def _owner(action: str, of: Of) -> Policy:
    return Policy(Needs.OWNER, action, of)


POLICIES: Mapping[RouteKey, Policy] = {
    ("GET", "/health"): _public("health"),
    ("GET", "/ready"): _public("health"),
    ("GET", "/metrics"): Policy(Needs.OPERATOR, "metrics.read"),
    ("GET", "/openapi.json"): _public("openapi"),
    # The page has no data of its own; it calls the routes below.
    ("GET", "/"): _public("page"),
    ("GET", "/ui/{path:path}"): _public("page"),
    ("GET", "/agent/agents"): _signed_in("agents.list"),
    ("POST", "/agent/sessions"): _signed_in("sessions.create"),
    ("GET", "/agent/sessions"): _signed_in("sessions.list"),
    ("GET", "/agent/sessions/{session_id}"): _owner("sessions.read", Of.SESSION),
    ("PATCH", "/agent/sessions/{session_id}"): _owner("sessions.change", Of.SESSION),
    ("POST", "/agent/messages"): _signed_in("messages.send"),
    ("GET", "/agent/sessions/{session_id}/messages"): _owner("messages.list", Of.SESSION),
    ("POST", "/agent/sessions/{session_id}/messages"): _owner("messages.send", Of.SESSION),
    ("GET", "/agent/sessions/{session_id}/executions"): _owner("executions.list", Of.SESSION),
    ("GET", "/agent/executions"): _signed_in("executions.overview"),
    ("GET", "/agent/executions/{execution_id}"): _owner("executions.read", Of.EXECUTION),
    ("POST", "/agent/executions/{execution_id}/cancel"): _owner("executions.cancel", Of.EXECUTION),
    ("POST", "/agent/executions/{execution_id}/resume"): _owner("executions.resume", Of.EXECUTION),
    ("POST", "/agent/executions/{execution_id}/answer"): _owner("executions.answer", Of.EXECUTION),
    ("POST", "/agent/executions/{execution_id}/fork"): _owner("executions.fork", Of.EXECUTION),
    ("GET", "/agent/executions/{execution_id}/steps"): _owner("executions.read", Of.EXECUTION),
    ("GET", "/agent/executions/{execution_id}/steps/{number}"): _owner(
        "executions.read", Of.EXECUTION
    ),
    ("GET", "/agent/executions/{execution_id}/trace"): _owner("executions.read", Of.EXECUTION),
    ("GET", "/agent/executions/{execution_id}/snapshots"): _owner("snapshots.list", Of.EXECUTION),
    ("GET", "/agent/executions/{execution_id}/snapshots/{snapshot_id}"): _owner(
        "snapshots.read", Of.SNAPSHOT
    ),
    ("GET", "/agent/keys"): _signed_in("keys.list"),
    ("POST", "/agent/keys"): _signed_in("keys.create"),
    ("DELETE", "/agent/keys/{key_id}"): _owner("keys.revoke", Of.KEY),
    ("GET", "/agent/sessions/{session_id}/events"): _owner("sessions.follow", Of.SESSION),
    ("POST", "/agent/sessions/{session_id}/stream-token"): _owner("sessions.follow", Of.SESSION),
    ("POST", "/agent/ag-ui"): _signed_in("messages.send"),
    ("POST", "/agent/sessions/{session_id}/ag-ui"): _owner("messages.send", Of.SESSION),
    ("POST", "/agent/ai-sdk"): _signed_in("messages.send"),
    ("GET", "/agent/ai-sdk/{chat}/stream"): _signed_in("sessions.follow"),
    ("POST", "/agent/sessions/{session_id}/ai-sdk"): _owner("messages.send", Of.SESSION),
    ("GET", "/agent/sessions/{session_id}/ai-sdk/{chat}/stream"): _owner(
        "sessions.follow", Of.SESSION
    ),
    ("POST", "/v1/chat/completions"): _signed_in("messages.send"),
    ("POST", "/v1/responses"): _signed_in("messages.send"),
    ("GET", "/v1/models"): _signed_in("agents.list"),
    ("GET", "/v1/models/{model}"): _signed_in("agents.list"),
    # The Pusher protocol authorizes each channel; an open socket alone reveals nothing.
    ("WEBSOCKET", "/app/{key}"): _public("socket"),
    # Each channel is authorized by CHANNELS below.
    ("POST", "/broadcasting/auth"): _signed_in("channels.join"),
}

CHANNELS: Mapping[str, Policy] = {
    "private-agent.session.{session_id}": _owner("sessions.follow", Of.SESSION),
}
"""The channels of the Pusher protocol; no others can be joined."""

FOLLOW = CHANNELS["private-agent.session.{session_id}"]

_CHANNEL_PATTERNS = {
    re.compile(
        re.escape(pattern).replace(r"\{session_id\}", r"(?P<session_id>[A-Za-z0-9_-]{1,64})")
    ): policy
    for pattern, policy in CHANNELS.items()
}


def channel_policy(channel: str) -> tuple[Policy, str] | None:
    """Return the policy of a channel and its session id; None if there is no such channel.

    >>> channel_policy("private-agent.session.s1")[1]
    's1'
    >>> channel_policy("presence-lobby") is None
    True
    """
    for pattern, policy in _CHANNEL_PATTERNS.items():
        if found := pattern.fullmatch(channel):
            return policy, found["session_id"]
    return None
