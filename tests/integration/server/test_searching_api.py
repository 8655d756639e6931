"""Searching by HTTP: what is refused."""

from pathlib import Path

import pytest

from stepwell.server.settings import ServerSettings
from tests.integration.server.serving import Served, serving


@pytest.mark.parametrize("search", ["a" * 51, "one two three four five six"])
async def test_a_search_for_too_much_is_refused(served: Served, search: str) -> None:
    async with served.client() as ada:
        refused = await ada.get("/agent/sessions", params={"search": search})
        allowed = await ada.get("/agent/sessions", params={"search": "a" * 50})

    assert (refused.status_code, allowed.status_code) == (422, 200)
    assert refused.json()["code"] == "search_too_long"


async def test_who_searches_too_often_is_told_to_wait(folder: Path) -> None:
    settings = ServerSettings(sends_per_second=0.01, send_burst=2)
    async with serving(folder, server=settings) as it:
        async with it.client("ada") as ada:
            searches = [
                await ada.get("/agent/sessions", params={"search": "letter"}) for _ in range(3)
            ]
            listed = await ada.get("/agent/sessions")
        assert it.services.metrics.refused.value(limit="rate") == 1

    assert [answer.status_code for answer in searches] == [200, 200, 429]
    assert searches[-1].json()["code"] == "rate_limited"
    assert listed.status_code == 200
