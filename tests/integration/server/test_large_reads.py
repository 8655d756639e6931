"""Reading a large execution: in parts, bounded, and without work on the loop of the server."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell.agent import Agent
from stepwell.models import ModelRequest
from stepwell.serialization import AgentStateSerializer
from stepwell.sessions.settings import SessionSettings
from stepwell.sessions.views.step_data import step_as_data
from stepwell.testing import ScriptedModel, call
from stepwell.testing.scripted_model import Scripted
from stepwell.text import json_bytes
from stepwell.tools import tool
from tests.integration.server.serving import Served, serving

LARGE = 50_000_000
STEPS = 300
MOST_BYTES = 1_000_000


@tool
def report(size: int, items: int = 0) -> Any:
    """Give a long report."""
    return {"rows": ["y" * size] * items} if items else "x" * size


def turn_for(request: ModelRequest) -> Scripted:
    """To ``large n`` a call with a large result, to ``list`` a structured one, to ``many`` many."""
    asked = next(it for it in reversed(request.messages) if it.is_user()).text
    done = sum(it.is_tool() for it in request.messages)
    if asked == "many" and done < STEPS:
        return call("report", id=f"call_{done}", size=600)
    if asked.startswith("large") and not done:
        return call("report", id="call_large", size=int(asked.removeprefix("large ")))
    if asked == "list" and not done:
        return call("report", id="call_list", size=5, items=100_000)
    return "Done."


def agents() -> dict[str, Agent]:
    limits: dict[str, Any] = {"max_steps": None, "max_tokens": None, "timeout": None}
    model = ScriptedModel(turn_for)
    return {
        "helper": Agent(
            model, tools=[report], max_result_characters=10**8, repeated_calls=None, **limits
        )
    }


@pytest.fixture
async def served(folder: Path) -> AsyncIterator[Served]:
    # What is large takes its time to be stored, and nobody else works here.
    patient = SessionSettings(lease_seconds=3600.0)
    async with serving(folder, made_agents=agents, sessions=patient) as served:
        yield served


async def run(served: Served, ada: httpx2.AsyncClient, content: str) -> str:
    """The address of an execution that answered that message."""
    sent = (await ada.post("/agent/messages", json={"content": content})).json()
    await served.work_off()
    return f"/agent/executions/{sent['execution']['id']}"


async def test_a_large_result_is_read_without_work_on_the_loop(
    served: Served, ada: httpx2.AsyncClient
) -> None:
    url = await run(served, ada, f"large {LARGE}")
    state = await served.services.reader.state_at(url.rpartition("/")[2])
    document = AgentStateSerializer().to_json(state)
    # This thread's own processor time, which no other load of the machine adds to.
    start = time.thread_time()
    whole = AgentStateSerializer().from_json(document)
    json_bytes(step_as_data(whole.steps[0]))
    once = time.thread_time() - start

    start = time.thread_time()
    answers = await asyncio.gather(*(ada.get(f"{url}/steps") for _ in range(4)))
    trace = await ada.get(f"{url}/trace")
    on_the_loop = time.thread_time() - start

    assert on_the_loop < once, "all five did less on the loop than one decoding and encoding is"
    for answer in (*answers, trace):
        assert answer.status_code == 200
        assert len(answer.content) < MOST_BYTES
    first = answers[0].json()["items"][0]
    assert first["truncated"]
    result = first["tool_executions"][0]["result"]
    assert f"{LARGE - 16_000:,} more characters; GET {url}/steps/1" in result


async def test_the_whole_of_a_step_and_a_snapshot_can_be_fetched(
    served: Served, ada: httpx2.AsyncClient
) -> None:
    url = await run(served, ada, "large 2000000")
    step = await ada.get(f"{url}/steps/1")
    assert step.json()["tool_executions"][0]["result"] == "x" * 2_000_000
    assert step.json()["truncated"] is False
    assert int(step.headers["content-length"]) == len(step.content)
    assert [(await ada.get(f"{url}/steps/{n}")).status_code for n in (3, 99)] == [404, 404]
    newest = (await ada.get(f"{url}/snapshots")).json()["items"][-1]
    snapshot = (await ada.get(f"{url}/snapshots/{newest['id']}")).json()
    assert snapshot["step_number"] == 2
    state = AgentStateSerializer().deserialize(snapshot["state"])
    assert state == await served.services.reader.state_of(newest["id"])


async def test_many_values_are_cut_like_long_ones(served: Served, ada: httpx2.AsyncClient) -> None:
    url = await run(served, ada, "list")
    page = await ada.get(f"{url}/steps")
    assert len(page.content) < MOST_BYTES
    assert page.json()["items"][0]["truncated"]
    whole = (await ada.get(f"{url}/steps/1")).json()
    assert whole["tool_executions"][0]["result"].count('"yyyyy"') == 100_000


async def test_steps_and_trace_come_in_parts_that_make_the_whole(
    served: Served, ada: httpx2.AsyncClient
) -> None:
    url = await run(served, ada, "many")
    all_of = await served.services.reader.trace(url.rpartition("/")[2])

    steps: list[Any] = []
    sizes: list[int] = []
    after: int | None = 0
    while after is not None:
        answer = await ada.get(f"{url}/steps", params={"after": after, "limit": 200})
        steps += answer.json()["items"]
        sizes.append(len(answer.content))
        after = answer.json()["next"]
    parts: list[Any] = []
    cursor: str | None = None
    while not parts or cursor is not None:
        answer = await ada.get(
            f"{url}/trace", params={"limit": 70, "cursor": cursor} if cursor else {"limit": 70}
        )
        parts.append(answer.json())
        sizes.append(len(answer.content))
        cursor = parts[-1]["next"]

    assert len(sizes) > 8
    assert max(sizes) < MOST_BYTES
    assert [step["number"] for step in steps] == list(range(1, STEPS + 2))
    assert [step for part in parts for step in part["steps"]] == steps
    assert [{**it, "truncated": False} for it in all_of["steps"]] == steps
    told = [message["id"] for part in parts for message in part["messages"]]
    assert told == [message["id"] for message in all_of["messages"]]
    assert {part["explanation"] for part in parts} == {all_of["explanation"]}


async def test_a_page_of_messages_is_bounded_in_characters(
    served: Served, ada: httpx2.AsyncClient
) -> None:
    sent = (await ada.post("/agent/messages", json={"content": "a" * 90_000})).json()
    url = f"/agent/sessions/{sent['session']['id']}/messages"
    for n in range(19):
        await served.work_off()
        assert (await ada.post(url, json={"content": str(n) * 45_000})).status_code == 202
    await served.work_off()
    found: list[str] = []
    before: str | None = None
    pages = 0
    while pages == 0 or before is not None:
        query = {"limit": 200} if before is None else {"limit": 200, "before": before}
        answer = await ada.get(url, params=query)
        page = answer.json()
        assert sum(len(it["content"]) for it in page["items"]) <= 1_000_000
        found = [it["id"] for it in page["items"]] + found
        before = page["older"] if page["has_older"] else None
        pages += 1
    assert pages > 1
    rows = await served.store.read(lambda tx: tx.messages(sent["session"]["id"], limit=999))
    assert found == [row.id for row in rows]


async def test_snapshots_are_listed_in_parts(served: Served, ada: httpx2.AsyncClient) -> None:
    url = await run(served, ada, "many")
    other = await run(served, ada, "hello")
    ids: list[str] = []
    cursor: str | None = None
    pages = 0
    while pages == 0 or cursor is not None:
        query = {"limit": 70} if cursor is None else {"limit": 70, "cursor": cursor}
        page = (await ada.get(f"{url}/snapshots", params=query)).json()
        ids += [it["id"] for it in page["items"]]
        cursor = page["next"]
        pages += 1
    rows = await served.store.read(lambda tx: tx.snapshots(url.rpartition("/")[2]))
    assert (ids, pages) == ([row.id for row in rows], -(-len(rows) // 70))
    for wrong in (
        ids[0],
        "none",
        "\0",
        "\ud83d".encode("utf-8", "surrogatepass").decode("latin-1"),
    ):
        refused = await ada.get(f"{other}/snapshots", params={"cursor": wrong})
        assert (refused.status_code, refused.json()["code"]) == (422, "bad_cursor")


@pytest.mark.parametrize("cursor", ["x", "-1.", "1.zzz", "99999999999999999999.", "\u0661."])
async def test_what_is_no_cursor_of_a_trace_is_refused(
    served: Served, ada: httpx2.AsyncClient, cursor: str
) -> None:
    url = await run(served, ada, "hello")
    refused = await ada.get(f"{url}/trace", params={"cursor": cursor})
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_cursor")
