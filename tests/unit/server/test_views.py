"""Records as clients see them; what the OpenAPI document promises is what they get."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell.journal.status import ExecutionStatus
from stepwell.server.routes import shapes
from stepwell.server.views import (
    execution_view,
    key_view,
    message_view,
    session_view,
    snapshot_view,
    time_text,
)
from stepwell.sessions.records import (
    ApiKeyRecord,
    Execution,
    MessageRole,
    Session,
    SessionMessage,
    Snapshot,
)

AT = datetime(2026, 1, 6, 12, 34, 56, 123456, tzinfo=UTC)
SESSION = Session(
    id="s1",
    tenant_id="t",
    user_id="ada",
    agent_type="helper",
    created_at=AT,
    updated_at=AT,
    metadata={"project": "north"},
)
MESSAGE = SessionMessage(
    id="m1",
    tenant_id="t",
    session_id="s1",
    role=MessageRole.USER,
    content="hi",
    created_at=AT,
    metadata={"fingerprint": "f00", "mood": "good"},
    idempotency_key="ada:k",
)
EXECUTION = Execution(
    id="e1",
    tenant_id="t",
    agent_type="helper",
    definition_hash="h",
    created_at=AT,
    updated_at=AT,
    status=ExecutionStatus.PAUSED,
    output={"answer": [1, None]},
    decision={"stop_reason": "input_required"},
    pending=({"kind": "question", "call_id": "c1"},),
    worker_id="worker-7",
    started_at=AT,
)
SNAPSHOT = Snapshot(
    id="n1",
    tenant_id="t",
    agent_execution_id="e1",
    chain_id="n1",
    position=0,
    step_number=2,
    state_json='{"big": true}',
    created_at=AT,
)
KEY = ApiKeyRecord(
    id="k1",
    tenant_id="t",
    user_id="ada",
    name="ci",
    prefix="abc",
    secret_hash="5f2c",
    created_at=AT,
)


@pytest.mark.parametrize(
    ("view", "shape"),
    [
        (session_view(SESSION), shapes.SessionShape),
        (message_view(MESSAGE), shapes.MessageShape),
        (execution_view(EXECUTION), shapes.ExecutionShape),
        (snapshot_view(SNAPSHOT), shapes.SnapshotShape),
        (key_view(KEY), shapes.KeyShape),
    ],
)
def test_a_view_has_exactly_the_fields_of_its_shape(
    view: dict[str, Any], shape: type[BaseModel]
) -> None:
    shape.model_validate(view)

    assert list(view) == list(shape.model_fields)


def test_what_is_only_for_the_server_is_not_shown() -> None:
    everything = repr(
        [
            session_view(SESSION),
            message_view(MESSAGE),
            execution_view(EXECUTION),
            snapshot_view(SNAPSHOT),
            key_view(KEY),
        ]
    )

    for hidden in ("f00", "ada:k", "worker-7", "lease", "5f2c", "state_json", "tenant"):
        assert hidden not in everything
    assert message_view(MESSAGE)["metadata"] == {"mood": "good"}


def test_times_are_in_utc_with_microseconds() -> None:
    elsewhere = AT.astimezone(timezone(timedelta(hours=-3)))

    assert time_text(elsewhere) == "2026-01-06T12:34:56.123456Z"
    assert time_text(AT.replace(microsecond=0)) == "2026-01-06T12:34:56.000000Z"
    assert session_view(SESSION)["last_message_at"] is None
