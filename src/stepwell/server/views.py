"""Converts records for clients: plain dictionaries with times in ISO 8601, UTC, microseconds.

Leaves out what is only for the server: workers, hashes and idempotency keys.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from stepwell.journal.status import ExecutionStatus
from stepwell.sessions.records import ApiKeyRecord, Execution, Session, SessionMessage, Snapshot

if TYPE_CHECKING:
    from stepwell.sessions.directory import RegisteredAgent
    from stepwell.sessions.intake.intake import Sent

View = dict[str, Any]
_OWN = ("crashes", "definition_hash", "fingerprint", "tenant_id", "worker_id")
"""Fields that clients do not see; intake recognises a repeated send by the fingerprint."""


def time_text(at: datetime) -> str:
    """Return a time as text.

    >>> time_text(datetime(2026, 1, 6, 12, 34, 56, 123456, UTC))
    '2026-01-06T12:34:56.123456Z'
    """
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _time(at: datetime | None) -> str | None:
    return None if at is None else time_text(at)


def session_view(session: Session) -> View:
    """Return a session."""
    return {
        "id": session.id,
        "user_id": session.user_id,
        "agent_type": session.agent_type,
        "title": session.title,
        "status": session.status.value,
        "when_busy": session.when_busy.value,
        "related_type": session.related_type,
        "related_id": session.related_id,
        "initial_context_url": session.initial_context_url,
        "metadata": dict(session.metadata),
        "last_execution_id": session.last_execution_id,
        "last_snapshot_id": session.last_snapshot_id,
        "last_seq": session.last_seq,
        "last_message_at": _time(session.last_message_at),
        "created_at": time_text(session.created_at),
        "updated_at": time_text(session.updated_at),
    }


def session_item_view(session: Session, status: ExecutionStatus | None) -> View:
    """Return a session of a list, with the status of its last execution."""
    word = None if status is None else status.value
    return {**session_view(session), "last_execution_status": word}


def message_view(message: SessionMessage) -> View:
    """Return a message."""
    return {
        "id": message.id,
        "session_id": message.session_id,
        "role": message.role.value,
        "content": message.content,
        "agent_execution_id": message.agent_execution_id,
        "related_type": message.related_type,
        "related_id": message.related_id,
        "context_url": message.context_url,
        "metadata": _without_own(message.metadata),
        "created_at": time_text(message.created_at),
    }


def execution_view(execution: Execution) -> View:
    """Return an execution."""
    return {
        "id": execution.id,
        "session_id": execution.session_id,
        "user_id": execution.user_id,
        "parent_execution_id": execution.parent_execution_id,
        "agent_type": execution.agent_type,
        "agent_config": dict(execution.agent_config),
        "status": execution.status.value,
        "input": dict(execution.input),
        "output": execution.output,
        "step_count": execution.step_count,
        "token_usage": execution.token_usage,
        "token_details": dict(execution.token_details),
        "cost": execution.cost,
        "stop_reason": execution.stop_reason,
        "decision": None if execution.decision is None else dict(execution.decision),
        "pending": [dict(each) for each in execution.questions],
        "error_message": execution.error_message,
        "last_snapshot_id": execution.last_snapshot_id,
        "metadata": dict(execution.metadata),
        "attempt": execution.attempt,
        "cancel_requested": execution.cancel_requested,
        "created_at": time_text(execution.created_at),
        "updated_at": time_text(execution.updated_at),
        "started_at": _time(execution.started_at),
        "completed_at": _time(execution.completed_at),
    }


def snapshot_view(snapshot: Snapshot) -> View:
    """Return a snapshot without its state."""
    return {
        "id": snapshot.id,
        "agent_execution_id": snapshot.agent_execution_id,
        "parent_snapshot_id": snapshot.parent_snapshot_id,
        "agent_id": snapshot.agent_id,
        "agent_name": snapshot.agent_name,
        "step_number": snapshot.step_number,
        "is_final": snapshot.is_final,
        "created_at": time_text(snapshot.created_at),
    }


def trace_view(trace: Mapping[str, Any]) -> View:
    """Return the trace of an execution without its workers."""
    return {
        **trace,
        "execution": _without_own(trace["execution"]),
        "subagents": [_subagent_view(each) for each in trace["subagents"]],
        "messages": [
            {**each, "metadata": _without_own(each["metadata"])} for each in trace["messages"]
        ],
    }


def _subagent_view(child: Mapping[str, Any]) -> View:
    children = [_subagent_view(each) for each in child["subagents"]]
    return {**_without_own(child), "subagents": children}


def _without_own(fields: Mapping[str, Any]) -> View:
    return {name: value for name, value in fields.items() if name not in _OWN}


def sent_view(sent: "Sent") -> View:
    """Return the result of sending a message."""
    return {
        "session": session_view(sent.session),
        "message": message_view(sent.message),
        "execution": None if sent.execution is None else execution_view(sent.execution),
        "repeated": sent.repeated,
    }


def agent_view(agent: "RegisteredAgent", *, is_default: bool) -> View:
    """Return a registered agent with its description, examples and tools."""
    return {
        "name": agent.name,
        "description": agent.description,
        "tools": sorted(agent.config["tools"]),
        "definition_hash": agent.definition_hash,
        "model": agent.config["model"],
        "examples": list(agent.examples),
        "is_default": is_default,
    }


def key_view(key: ApiKeyRecord) -> View:
    """Return an API key without its secret."""
    return {
        "id": key.id,
        "user_id": key.user_id,
        "name": key.name,
        "prefix": key.prefix,
        "is_admin": key.is_admin,
        "roles": list(key.roles),
        "created_at": time_text(key.created_at),
        "expires_at": _time(key.expires_at),
        "revoked_at": _time(key.revoked_at),
        "last_used_at": _time(key.last_used_at),
    }
