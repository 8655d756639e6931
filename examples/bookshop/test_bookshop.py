"""The bookshop from outside: over HTTP, signed in as its users."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from examples.bookshop.app import make_shop

ADDRESS = "http://127.0.0.1"


class Person:
    """A browser in which somebody signed in."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    async def ask(self, text: str, **about: str) -> dict[str, Any]:
        """Send a message to the assistant; return its execution once it paused or ended."""
        sent = await self.client.post("/assistant/agent/messages", json={"content": text, **about})
        assert sent.status_code == 202, sent.text
        return await self.settled(sent.json()["execution"]["id"])

    async def settled(self, execution_id: str) -> dict[str, Any]:
        """Wait until an execution pauses or ends."""
        async with asyncio.timeout(60):
            while True:
                execution = await self.read(f"/assistant/agent/executions/{execution_id}")
                if execution["status"] not in ("pending", "running"):
                    return execution
                await asyncio.sleep(0.05)

    async def answer(self, execution: dict[str, Any], approved: bool) -> httpx2.Response:
        """Answer the question of a paused execution."""
        [question] = execution["pending"]
        body = {"question_id": question["question_id"], "answer": {"approved": approved}}
        path = f"/assistant/agent/executions/{execution['id']}/answer"
        return await self.client.post(path, json=body)

    async def read(self, path: str) -> Any:
        """Get a document."""
        response = await self.client.get(path)
        assert response.status_code == 200, response.text
        return response.json()

    async def refunds(self) -> dict[int, str | None]:
        """For whom each visible order was refunded."""
        return {it["id"]: it["refunded_by"] for it in (await self.read("/orders"))["orders"]}


class Shop:
    """The shop, open."""

    def __init__(self, app: Any) -> None:
        self._app = app

    @asynccontextmanager
    async def sign_in(self, user: str) -> AsyncGenerator[Person]:
        """A browser in which that user signed in."""
        transport = httpx2.ASGITransport(self._app)
        async with httpx2.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            assert (await client.post("/login", data={"user": user})).status_code == 303
            yield Person(client)


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Shop]:
    app = make_shop(tmp_path)
    async with app.router.lifespan_context(app):
        yield Shop(app)


async def test_everybody_sees_their_own_orders(shop: Shop) -> None:
    async with shop.sign_in("ada") as ada, shop.sign_in("bob") as bob:
        assert "18" not in (await ada.ask("What are my orders?"))["output"]
        assert "18: Life" in (await bob.ask("What are my orders?"))["output"]


async def test_nobody_refunds_an_order_of_somebody_else(shop: Shop) -> None:
    async with shop.sign_in("ada") as ada, shop.sign_in("bob") as bob:
        execution = await ada.ask("Refund order 18.")
        assert execution["output"] == "There is no order 18."
        assert (await bob.refunds())[18] is None


async def test_a_small_refund_happens_at_once(shop: Shop) -> None:
    async with shop.sign_in("ada") as ada:
        assert "is refunded" in (await ada.ask("Refund order 19."))["output"]
        assert (await ada.refunds())[19] == "ada"


async def test_a_large_refund_waits_for_staff_and_is_then_the_customers(shop: Shop) -> None:
    async with shop.sign_in("ada") as ada, shop.sign_in("cleo") as cleo:
        waiting = await ada.ask("Refund order 17.")
        assert waiting["status"] == "paused"
        assert (await ada.refunds())[17] is None
        [listed] = (await cleo.read("/assistant/agent/executions?waiting=true"))["items"]
        assert listed["id"] == waiting["id"]
        assert (await cleo.answer(waiting, approved=True)).status_code == 202
        assert "is refunded" in (await ada.settled(waiting["id"]))["output"]
        assert (await ada.refunds())[17] == "ada"


async def test_only_staff_approves(shop: Shop) -> None:
    async with shop.sign_in("ada") as ada, shop.sign_in("bob") as bob:
        waiting = await ada.ask("Refund order 17.")
        assert (await bob.answer(waiting, approved=True)).status_code == 404
        assert (await ada.answer(waiting, approved=True)).status_code == 403
        assert (await ada.refunds())[17] is None


async def test_a_message_about_an_order_must_be_about_an_own_one(shop: Shop) -> None:
    async with shop.sign_in("ada") as ada, shop.sign_in("bob") as bob:
        about = {"related_type": "order", "related_id": "17"}
        await ada.ask("hello", **about)
        sessions = await ada.read("/assistant/agent/sessions?related_type=order&related_id=17")
        assert len(sessions["items"]) == 1
        refused = await bob.client.post(
            "/assistant/agent/messages", json={"content": "hello", **about}
        )
        assert (refused.status_code, refused.json()["code"]) == (422, "context_refused")
