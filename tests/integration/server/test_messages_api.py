"""Messages by HTTP: sent and listed."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from stepwell.server.settings import ServerSettings
from stepwell.sessions.settings import SessionSettings
from tests.integration.server.serving import Served, serving


async def sent(client: httpx2.AsyncClient, content: str, **more: Any) -> dict[str, Any]:
    answer = await client.post("/agent/messages", json={"content": content, **more})
    assert answer.status_code == 202, answer.text
    return answer.json()


async def test_a_first_message_makes_its_session_and_is_answered(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "hello", related_type="invoice", related_id="42")
        assert first["execution"]["status"] == "pending"
        assert first["session"]["related_id"] == "42"
        assert first["session"]["last_execution_id"] == first["execution"]["id"]
        assert first["message"]["context_url"] == "/invoices/42"
        assert first["repeated"] is False

        await served.work_off()
        page = (await ada.get(f"/agent/sessions/{first['session']['id']}/messages")).json()

    told = [(item["role"], item["content"]) for item in page["items"]]
    assert told[:2] == [("user", "hello"), ("info", "Execution queued")]
    assert ("assistant", "You said: hello") in told
    times = [item["created_at"] for item in page["items"]]
    assert times == sorted(set(times))
    assert served.services.metrics.sends.value(result="new") == 1


async def test_the_session_of_a_first_message_can_be_described(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "hello", session={"agent_type": "thrifty", "title": "Mine"})

    assert first["session"]["agent_type"] == "thrifty"
    assert first["session"]["title"] == "Mine"


async def test_a_second_message_goes_on_in_the_same_session(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "hello")
        await served.work_off()
        url = f"/agent/sessions/{first['session']['id']}/messages"
        second = await ada.post(url, json={"content": "again", "metadata": {"mood": "good"}})
        await served.work_off()
        page = (await ada.get(url, params={"limit": 200})).json()

    assert second.status_code == 202
    assert second.json()["message"]["metadata"] == {"mood": "good"}
    said = [item["content"] for item in page["items"] if item["role"] == "assistant"]
    assert said == ["You said: hello", "You said: again"]


async def test_a_repeated_key_sends_once(served: Served) -> None:
    key = {"Idempotency-Key": "k-1"}
    async with served.client() as ada, served.client("bob") as bob:
        one = await ada.post("/agent/messages", json={"content": "hi"}, headers=key)
        two = await ada.post("/agent/messages", json={"content": "hi"}, headers=key)
        other = await bob.post("/agent/messages", json={"content": "hi"}, headers=key)
        differs = await ada.post("/agent/messages", json={"content": "ho"}, headers=key)

    assert one.json()["message"] == two.json()["message"]
    assert [one.json()["repeated"], two.json()["repeated"]] == [False, True]
    assert "fingerprint" not in one.json()["message"]["metadata"]
    assert other.json()["repeated"] is False
    assert differs.status_code in (409, 422)
    assert served.services.metrics.sends.value(result="repeated") == 1


@pytest.mark.parametrize("key", ["", "a b", "k" * 201, "\u00e9"])
async def test_a_key_that_can_be_none_is_refused(served: Served, key: str) -> None:
    async with served.client() as ada:
        answer = await ada.post(
            "/agent/messages",
            json={"content": "hi"},
            headers={"Idempotency-Key": key.encode("latin-1")},  # type: ignore[dict-item]
        )

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["in"] == "header"


async def test_messages_are_paged_in_both_directions(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "add")
        await served.work_off()
        url = f"/agent/sessions/{first['session']['id']}/messages"
        everything = (await ada.get(url, params={"limit": 200})).json()
        ids = [item["id"] for item in everything["items"]]
        assert len(ids) > 5

        back: list[str] = []
        page = (await ada.get(url, params={"limit": 2})).json()
        assert page["has_newer"] is False
        while True:
            back = [item["id"] for item in page["items"]] + back
            if not page["has_older"]:
                break
            page = (await ada.get(url, params={"limit": 2, "before": page["older"]})).json()
            assert page["has_newer"] is True
        assert back == ids

        forth = [item["id"] for item in page["items"]]
        while page["has_newer"]:
            page = (await ada.get(url, params={"limit": 3, "after": page["newer"]})).json()
            assert page["has_older"] is True
            forth += [item["id"] for item in page["items"]]
        assert forth == ids


async def test_who_waits_for_news_keeps_the_cursor(served: Served) -> None:
    async with served.client() as ada:
        url = f"/agent/sessions/{(await sent(ada, 'one'))['session']['id']}/messages"
        page = (await ada.get(url)).json()
        nothing = (await ada.get(url, params={"after": page["newer"]})).json()
        assert (nothing["items"], nothing["newer"]) == ([], page["newer"])

        await ada.post(url, json={"content": "two"})
        news = (await ada.get(url, params={"after": nothing["newer"]})).json()

    assert news["items"][0]["content"] == "two"


async def test_an_empty_session_has_an_empty_page(served: Served) -> None:
    async with served.client() as ada:
        session = (await ada.post("/agent/sessions", json={})).json()
        page = (await ada.get(f"/agent/sessions/{session['id']}/messages")).json()

    assert page == {
        "items": [],
        "older": None,
        "newer": None,
        "has_older": False,
        "has_newer": False,
        "settled_seq": 0,
        "last_seq": 0,
        "unfinished": [],
    }


async def test_two_cursors_at_once_are_refused(served: Served) -> None:
    async with served.client() as ada:
        url = f"/agent/sessions/{(await sent(ada, 'one'))['session']['id']}/messages"
        newer = (await ada.get(url)).json()["newer"]
        answer = await ada.get(url, params={"after": newer, "before": newer})

    assert (answer.status_code, answer.json()["code"]) == (422, "two_cursors")


async def test_a_busy_session_can_reject(served: Served) -> None:
    async with served.client() as ada:
        first = await sent(ada, "hello", session={"when_busy": "reject"})
        url = f"/agent/sessions/{first['session']['id']}/messages"
        answer = await ada.post(url, json={"content": "now"})

    assert answer.status_code == 409


async def test_a_long_message_is_refused(folder: Path) -> None:
    settings = SessionSettings(max_message_characters=5)
    async with serving(folder, sessions=settings) as it, it.client() as ada:
        codes = []
        for length in (5, 6, 11):
            answer = await ada.post("/agent/messages", json={"content": "x" * length})
            codes.append((answer.status_code, answer.json().get("code")))

    assert codes == [(202, None), (422, "message_too_long"), (422, "message_too_long")]


@pytest.mark.parametrize("content", ["", "  ", "a\0b", None, 7])
async def test_a_message_that_says_nothing_is_refused(served: Served, content: Any) -> None:
    async with served.client() as ada:
        answer = await ada.post("/agent/messages", json={"content": content})

    assert answer.status_code == 422


async def test_half_a_character_is_refused(served: Served) -> None:
    async with served.client(headers={"Content-Type": "application/json"}) as ada:
        text = await ada.post("/agent/messages", content=b'{"content": "\\ud83d"}')
        inside = await ada.post(
            "/agent/messages", content=b'{"content": "a", "metadata": {"x": ["\\ud83d"]}}'
        )

    assert (text.status_code, inside.status_code) == (422, 422)


async def test_who_sends_too_fast_is_told_to_wait(folder: Path) -> None:
    settings = ServerSettings(sends_per_second=0.01, send_burst=2)
    async with serving(folder, server=settings) as it:
        async with it.client("ada") as ada, it.client("bob") as bob:
            statuses = [
                (await ada.post("/agent/messages", json={"content": "hi"})).status_code
                for _ in range(3)
            ]
            refused = await ada.post("/agent/sessions", json={})
            his = await bob.post("/agent/messages", json={"content": "hi"})
            read = await ada.get("/agent/sessions")
        assert it.services.metrics.refused.value(limit="rate") == 2

    assert statuses == [202, 202, 429]
    assert refused.json()["code"] == "rate_limited"
    assert int(refused.headers["retry-after"]) > 1
    assert (his.status_code, read.status_code) == (202, 200)


async def test_a_full_queue_is_said_to_be_full(folder: Path) -> None:
    sessions = SessionSettings(max_unfinished_per_user=2)
    async with serving(folder, sessions=sessions) as it, it.client() as ada:
        for _ in range(2):
            await sent(ada, "hello")
        answer = await ada.post("/agent/messages", json={"content": "hello"})

    assert answer.status_code == 429
    assert "retry-after" in answer.headers
