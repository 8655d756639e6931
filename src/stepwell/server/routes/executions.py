"""Executions: read, cancel, answer, resume, fork, explain."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.responses import Response

from stepwell.journal.status import ExecutionStatus
from stepwell.server.bodies import (
    AnswerBody,
    CancelBody,
    ExecutionQuery,
    ForkBody,
    PageQuery,
    ResumeBody,
    StepQuery,
)
from stepwell.server.pages import (
    bad_cursor,
    cursor_of,
    cut,
    place_of,
    trace_cursor,
    trace_place,
)
from stepwell.server.policy import Access, require
from stepwell.server.routes.conventions import (
    WITH_BODY,
    AccessDep,
    SendAccessDep,
    ServicesDep,
    answer,
    answer_in_chunks,
    page_limit,
    route_docs,
)
from stepwell.server.routes.sessions import the_session, whose
from stepwell.server.routes.shapes import (
    ExecutionPage,
    ExecutionShape,
    SentShape,
    SnapshotPage,
    StepPage,
    WholeSnapshotShape,
)
from stepwell.server.views import execution_view, sent_view, snapshot_view, trace_view
from stepwell.sessions.errors import RefusedError
from stepwell.sessions.ports import ExecutionFilter, Transaction
from stepwell.sessions.records import Execution, Snapshot
from stepwell.text import json_bytes

router = APIRouter(prefix="/agent")
_TAG = "executions"
_NO_CANCEL = CancelBody()
_NO_RESUME = ResumeBody()
_NO_FORK = ForkBody()


@router.get(
    "/sessions/{session_id}/executions",
    response_model=ExecutionPage,
    **route_docs("list_executions", _TAG, 404),
)
async def list_executions(
    query: Annotated[PageQuery, Query()], access: AccessDep, services: ServicesDep
) -> Response:
    """List the executions of a session, oldest first."""
    session_id = the_session(access).id
    limit = page_limit(query.limit, services.settings)
    place = place_of(query.cursor)
    rows = await services.store.read(
        lambda tx: tx.executions(session_id=session_id, after=place, limit=limit + 1)
    )
    return _page_of(rows, limit)


@router.get("/executions", response_model=ExecutionPage, **route_docs("list_all_executions", _TAG))
async def list_all_executions(
    query: Annotated[ExecutionQuery, Query()], access: AccessDep, services: ServicesDep
) -> Response:
    """List one's own executions, or for administrators those of the tenant, newest first, without
    those of subagents."""
    if query.waiting and query.status not in (None, ExecutionStatus.PAUSED):
        raise RefusedError(
            "an execution that waits for a person is paused; leave status out", code="two_states"
        )
    limit = page_limit(query.limit, services.settings)
    which = ExecutionFilter(
        tenant_id=access.principal.tenant_id,
        user_id=whose(access, query.user_id, "executions"),
        status=ExecutionStatus.PAUSED if query.waiting else query.status,
        agent_type=query.agent_type,
    )
    before = place_of(query.cursor)
    rows = await services.store.read(
        lambda tx: tx.newest_executions(which, before=before, limit=limit + 1)
    )
    return _page_of(rows, limit)


@router.get(
    "/executions/{execution_id}",
    response_model=ExecutionShape,
    **route_docs("get_execution", _TAG, 404),
)
async def get_execution(access: AccessDep) -> Response:
    """Read an execution: its status, what it waits for, why it stopped."""
    return answer(execution_view(the_execution(access)))


@router.post(
    "/executions/{execution_id}/cancel",
    status_code=202,
    response_model=ExecutionShape,
    **route_docs("cancel_execution", _TAG, *WITH_BODY, 404, 409),
)
async def cancel_execution(
    access: AccessDep, services: ServicesDep, body: CancelBody = _NO_CANCEL
) -> Response:
    """Cancel an execution, including calls in flight."""
    reason = body.reason
    execution = await services.lifecycle.cancel(the_execution(access).id, reason=reason)
    return answer(execution_view(execution), 202)


@router.post(
    "/executions/{execution_id}/resume",
    status_code=202,
    response_model=ExecutionShape,
    **route_docs("resume_execution", _TAG, *WITH_BODY, 404, 409, 429),
)
async def resume_execution(
    access: SendAccessDep, services: ServicesDep, body: ResumeBody = _NO_RESUME
) -> Response:
    """Grant budget to an execution that ran out of it, or resume one that was set aside."""
    execution = await services.lifecycle.resume(
        the_execution(access).id,
        question_id=body.question_id,
        steps=body.steps,
        tokens=body.tokens,
        seconds=body.seconds,
        cost=body.cost,
        accept_change=body.accept_change,
    )
    return answer(execution_view(execution), 202)


@router.post(
    "/executions/{execution_id}/answer",
    status_code=202,
    response_model=ExecutionShape,
    **route_docs("answer_execution", _TAG, *WITH_BODY, 404, 409, 429),
)
async def answer_execution(
    body: AnswerBody, access: SendAccessDep, services: ServicesDep
) -> Response:
    """Answer a question or an approval that an execution waits for, by its id."""
    execution = await services.lifecycle.answer(
        the_execution(access).id, body.question_id, body.answer, call_id=body.call_id
    )
    return answer(execution_view(execution), 202)


@router.post(
    "/executions/{execution_id}/fork",
    status_code=202,
    response_model=SentShape,
    **route_docs("fork_execution", _TAG, *WITH_BODY, 404, 409, 429),
)
async def fork_execution(
    access: SendAccessDep, services: ServicesDep, body: ForkBody = _NO_FORK
) -> Response:
    """Start a new session from the state after a step."""
    await require(services, access.principal, "sessions.create")
    sent = await services.lifecycle.fork(
        access.principal,
        the_execution(access).id,
        step_number=body.step_number,
        message=body.message,
    )
    return answer(sent_view(sent), 202)


@router.get(
    "/executions/{execution_id}/steps",
    response_model=StepPage,
    **route_docs("list_steps", _TAG, 404),
)
async def list_steps(
    query: Annotated[StepQuery, Query()], access: AccessDep, services: ServicesDep
) -> Response:
    """List the steps of an execution with tools, usage and decisions; large values are
    truncated."""
    limit = page_limit(query.limit, services.settings)
    part = await services.reader.step_page(the_execution(access).id, after=query.after, limit=limit)
    following = part.items[-1]["number"] if part.has_more else None
    return answer({"items": part.items, "next": following})


@router.get(
    "/executions/{execution_id}/steps/{number}",
    response_model=dict[str, Any],
    **route_docs("get_step", _TAG, 404),
)
async def get_step(
    number: Annotated[int, Path(ge=1, le=10**9)], access: AccessDep, services: ServicesDep
) -> Response:
    """Read one step in full."""
    return answer_in_chunks(await services.reader.step(the_execution(access).id, number))


@router.get(
    "/executions/{execution_id}/trace",
    response_model=dict[str, Any],
    **route_docs("get_trace", _TAG, 404),
)
async def get_trace(
    query: Annotated[PageQuery, Query()], access: AccessDep, services: ServicesDep
) -> Response:
    """Read all that is known of an execution: why it stopped, steps, subagents, messages. Steps and
    messages come in pages: use `next` as the cursor until it is null, and join them."""
    page = await services.reader.trace_page(
        the_execution(access).id,
        trace_place(query.cursor),
        limit=page_limit(query.limit, services.settings),
    )
    following = None if page.next is None else trace_cursor(page.next)
    return answer({**trace_view(page.trace), "next": following})


@router.get(
    "/executions/{execution_id}/snapshots",
    response_model=SnapshotPage,
    **route_docs("list_snapshots", _TAG, 404),
)
async def list_snapshots(
    query: Annotated[PageQuery, Query()], access: AccessDep, services: ServicesDep
) -> Response:
    """List the snapshots of an execution in order, without their states."""
    execution_id, cursor = the_execution(access).id, query.cursor
    limit = page_limit(query.limit, services.settings)

    async def read(tx: Transaction) -> Sequence[Snapshot]:
        last = await tx.snapshot(cursor) if cursor is not None and cursor.isprintable() else None
        if cursor is not None and (last is None or last.agent_execution_id != execution_id):
            raise bad_cursor()
        return await tx.snapshots(execution_id, after=last, limit=limit + 1)

    shown, has_more = cut(await services.store.read(read), limit)
    following = shown[-1].id if has_more else None
    return answer({"items": [snapshot_view(each) for each in shown], "next": following})


@router.get(
    "/executions/{execution_id}/snapshots/{snapshot_id}",
    response_model=WholeSnapshotShape,
    **route_docs("get_snapshot", _TAG, 404),
)
async def get_snapshot(access: AccessDep, services: ServicesDep) -> Response:
    """Read a snapshot with its whole state."""
    assert access.snapshot is not None, "the policy of this route loads the snapshot"
    state = await services.reader.snapshot_json(access.snapshot.id)
    about = json_bytes(snapshot_view(access.snapshot))
    return answer_in_chunks(about[:-1] + b',"state":', state, b"}")


def _page_of(rows: Sequence[Execution], limit: int) -> Response:
    shown, has_more = cut(rows, limit)
    following = cursor_of(shown[-1].created_at, shown[-1].id) if has_more else None
    return answer({"items": [execution_view(each) for each in shown], "next": following})


def the_execution(access: Access) -> Execution:
    """Return the execution that the path names; the guard has loaded it."""
    assert access.execution is not None, "the policy of this route loads the execution"
    return access.execution
