"""Every error becomes a problem document that says enough and not too much."""

import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import FastAPI, HTTPException, Query

from stepwell.errors import AgentNotFoundError
from stepwell.server.bodies import MessageBody, SessionBody
from stepwell.server.metrics import Metrics
from stepwell.server.problems import install_problems, problem
from stepwell.sessions.errors import (
    ConflictError,
    LostLeaseError,
    NotThereError,
    RefusedError,
    StoreUnavailableError,
    TooManyError,
)
from stepwell.testing import SequentialIds

RAISED: dict[str, Exception] = {
    "not_there": NotThereError("session", "s1"),
    "conflict": ConflictError("it is closed", code="session_closed"),
    "refused": RefusedError("too long", code="message_too_long"),
    "too_many": TooManyError("slower", code="rate_limited", retry_after=2.2),
    "too_many_for_now": TooManyError("later", code="queue_full"),
    "unavailable": StoreUnavailableError("SELECT secret FROM x on db.internal failed"),
    "no_agent": AgentNotFoundError("bot", ["helper"]),
    "teapot": HTTPException(418, "short and stout", headers={"X-Tea": "green"}),
    "half": ConflictError("half \ud83d of it", code="half"),
    "lease": LostLeaseError("e1", 3),
    "defect": RuntimeError("password=hunter2"),
}


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    app = FastAPI(openapi_url=None)
    app.state.services = SimpleNamespace(metrics=Metrics(), new_id=SequentialIds("err"))
    install_problems(app)

    @app.get("/raise/{name}")
    async def raises(name: str) -> None:
        raise RAISED[name]

    @app.post("/message")
    async def message(body: MessageBody, many: Annotated[int, Query(ge=1)] = 1) -> str:
        return body.content

    @app.post("/session")
    async def session(body: SessionBody) -> str:
        return body.title or ""

    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize(
    ("name", "status", "code", "detail"),
    [
        ("not_there", 404, "session_not_found", "there is no session 's1'"),
        ("conflict", 409, "session_closed", "it is closed"),
        ("refused", 422, "message_too_long", "too long"),
        ("too_many", 429, "rate_limited", "slower"),
        ("no_agent", 422, "agent_not_found", "no agent is registered as 'bot'; known: helper"),
        ("half", 409, "half", "half \ufffd of it"),
    ],
)
async def test_a_wish_that_cannot_be_fulfilled_says_why(
    client: httpx2.AsyncClient, name: str, status: int, code: str, detail: str
) -> None:
    answer = await client.get(f"/raise/{name}")

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json() == {
        "type": f"urn:stepwell:problem:{code}",
        "title": answer.json()["title"],
        "status": status,
        "detail": detail,
        "code": code,
    }


@pytest.mark.parametrize(("name", "seconds"), [("too_many", "3"), ("too_many_for_now", "1")])
async def test_who_sends_too_much_is_told_when_to_come_back(
    client: httpx2.AsyncClient, name: str, seconds: str
) -> None:
    answer = await client.get(f"/raise/{name}")

    assert answer.headers["retry-after"] == seconds


async def test_a_database_that_does_not_answer_is_not_described(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answer = await client.get("/raise/unavailable")

    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert "SELECT" not in answer.text
    assert "db.internal" not in answer.text
    assert "db.internal" in caplog.text


@pytest.mark.parametrize("name", ["defect", "lease"])
async def test_of_a_defect_only_an_id_is_told_that_is_in_the_log(
    client: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.ERROR)

    answer = await client.get(f"/raise/{name}")

    assert answer.status_code == 500
    assert answer.json()["code"] == "internal_error"
    assert answer.json()["instance"] == "urn:uuid:err-1"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert str(RAISED[name]) not in answer.text
    (record,) = [each for each in caplog.records if each.name == "stepwell.server"]
    assert "err-1" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is RAISED[name]


async def test_other_refusals_keep_their_status_and_headers(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/raise/teapot")

    assert answer.status_code == 418
    assert answer.json()["detail"] == "short and stout"
    assert answer.headers["x-tea"] == "green"


async def test_an_unknown_path_and_a_wrong_method_are_problems_too(
    client: httpx2.AsyncClient,
) -> None:
    missing = await client.get("/nowhere")
    wrong = await client.get("/message")

    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert (wrong.status_code, wrong.json()["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"


def posted(text: bytes | str) -> dict[str, Any]:
    return {"content": text, "headers": {"content-type": "application/json"}}


@pytest.mark.parametrize("text", [b"{", b"", b"\xff", b"[1", b"{'a': 1}"])
async def test_what_is_no_json_is_a_bad_request(client: httpx2.AsyncClient, text: bytes) -> None:
    answer = await client.post("/message", **posted(text))

    assert answer.status_code == (422 if not text else 400)
    assert answer.headers["content-type"] == "application/problem+json"


async def test_every_field_that_does_not_fit_is_named_without_its_value(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.post("/message?many=0", **posted('{"content": 5, "metadata": "hunter2"}'))

    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_request"
    errors = answer.json()["errors"]
    assert {(each["in"], each["field"]) for each in errors} == {
        ("query", "many"),
        ("body", "content"),
        ("body", "metadata"),
    }
    assert "There are 2 more." in answer.json()["detail"]
    assert "hunter2" not in answer.text


async def test_names_of_unknown_fields_are_shortened(client: httpx2.AsyncClient) -> None:
    answer = await client.post("/session", **posted(f'{{"{"a" * 5000}": 1}}'))

    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["errors"]] == ["a" * 197 + "..."]


async def test_half_a_character_in_a_name_is_refused_like_others(
    client: httpx2.AsyncClient,
) -> None:
    answer = await client.post("/session", **posted('{"\\ud83d": 2}'))

    assert answer.status_code == 422
    assert answer.json()["code"] == "invalid_request"


async def test_many_errors_are_counted_but_not_all_listed(client: httpx2.AsyncClient) -> None:
    unknown = ",".join(f'"x{number}": 1' for number in range(500))
    answer = await client.post("/session", **posted(f"{{{unknown}}}"))

    assert len(answer.json()["errors"]) == 20
    assert "There are 499 more." in answer.json()["detail"]


def test_a_problem_is_never_kept_by_a_cache() -> None:
    assert problem(404, "x_not_found", "No.").headers["cache-control"] == "no-store"
