"""No request holds the event loop for more than 50 ms, however its client fills the limits."""

import asyncio
import gc
import itertools
import json
import string
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from stepwell.server.settings import ServerSettings
from stepwell.sessions.settings import SessionSettings
from tests.integration.server.loop_blocks import machine_factor, measure_callbacks
from tests.integration.server.serving import APP_SECRET, Served, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

LONGEST_SECONDS = 0.05
ITEMS = 9_990
MESSAGES, AI_SDK, AG_UI = "/agent/messages", "/agent/ai-sdk", "/agent/ag-ui"


def items(count: int, one: str) -> str:
    return "[" + ",".join([one] * count) + "]"


def wide(count: int, name: str = "k") -> str:
    return "{" + ",".join(f'"{name}{number}":1' for number in range(count)) + "}"


def with_metadata(value: str) -> str:
    return f'{{"content":"a","metadata":{value}}}'


def chat(count: int) -> str:
    message = {"role": "user", "parts": [{"type": "text", "text": "a"}]}
    return json.dumps({"id": "c", "messages": [{"id": f"m{n}", **message} for n in range(count)]})


def run_input(count: int) -> str:
    messages = [{"id": f"m{n}", "role": "user", "content": "a"} for n in range(count)]
    rest = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return json.dumps({"threadId": "t", "runId": "r", "messages": messages, **rest})


def with_file(url: str) -> str:
    part = {"type": "file", "mediaType": "image/png", "url": url}
    return json.dumps({"id": "c", "messages": [{"id": "m", "role": "user", "parts": [part]}]})


BODIES = {
    "unknown fields": (MESSAGES, wide(ITEMS)),
    "unknown long fields": (MESSAGES, wide(ITEMS, "k" * 90)),
    "unknown fields of a channel": ("/broadcasting/auth", wide(ITEMS)),
    "many names": (MESSAGES, with_metadata(wide(ITEMS))),
    "many numbers": (MESSAGES, with_metadata(f'{{"a":{items(ITEMS, "1")}}}')),
    "many objects": (MESSAGES, with_metadata(f'{{"a":{items(4_900, "{}")}}}')),
    "many texts": (MESSAGES, with_metadata(f'{{"a":{items(ITEMS, json.dumps("x" * 95))}}}')),
    "deep lists": (MESSAGES, with_metadata(f'{{"a":{items(320, "[" * 29 + "]" * 29)}}}')),
    "long integers": (MESSAGES, with_metadata(f'{{"a":{items(255, "9" * 4_000)}}}')),
    "one long number": (MESSAGES, f'{{"content":{"9" * 1_000_000}.5}}'),
    "one name again and again": (MESSAGES, "{" + '"content":"a",' * 9_000 + '"content":"a"}'),
    "a long text": (MESSAGES, json.dumps({"content": "x" * 1_000_000})),
    "a text of escapes": (MESSAGES, '{"content":"' + "\\u0041" * 170_000 + '"}'),
    "a text of half characters": (MESSAGES, '{"content":"' + "\\ud83d" * 170_000 + '"}'),
    "the longest message": (MESSAGES, json.dumps({"content": "\U0001f600" * 80_000})),
    "quotes": (MESSAGES, '"' * 1_000_000),
    "messages of a chat": (AI_SDK, chat(1_200)),
    "a file with percent escapes": (AI_SDK, with_file("data:image/png," + "%41" * 340_000)),
    "messages of a run": (AG_UI, run_input(2_300)),
}


def query_of_many_names() -> str:
    names = itertools.product(string.ascii_lowercase, repeat=3)
    return "&".join("".join(name) for name in itertools.islice(names, 14_000))


ADDRESSES = {
    "unknown parameters": f"/agent/sessions?{query_of_many_names()}",
    "one parameter again and again": "/agent/executions?" + "limit=1&" * 7_000,
    "empty parameters": "/agent/sessions?" + "&" * 60_000,
    "a parameter of escapes": "/agent/sessions?search=" + "%41" * 19_000,
    "a path of slashes": "/agent" + "/" * 60_000,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A server that lets one user send as fast as it likes."""
    server = ServerSettings(app_secret=APP_SECRET, sends_per_second=1e6, send_burst=10**6)
    sessions = SessionSettings(max_unfinished_per_user=10**6)
    async with serving(tmp_path_factory.mktemp("patient"), server=server, sessions=sessions) as it:
        # As `stepwell serve` does it: what was loaded before is not searched for garbage.
        gc.collect()
        gc.freeze()
        yield it
        gc.unfreeze()


async def longest_block(served: Served, method: str, path: str, body: str | None) -> float:
    """The shortest of three measurements of one request's longest block."""
    found: list[float] = []
    headers = {} if body is None else {"Content-Type": "application/json"}
    async with served.client() as ada:
        for _ in range(3):
            # Followed streams do not end by themselves; their first part is enough.
            with measure_callbacks() as longest:
                asking = asyncio.create_task(
                    ada.request(method, path, content=body, headers=headers)
                )
                await asyncio.wait({asking}, timeout=2)
                asking.cancel()
                await asyncio.wait({asking})
            found.append(longest.seconds)
    return min(found)


@pytest.mark.parametrize("name", BODIES)
async def test_no_body_holds_the_loop(patient: Served, name: str) -> None:
    path, body = BODIES[name]
    assert len(body.encode()) <= patient.services.settings.max_body_bytes

    assert await longest_block(patient, "POST", path, body) < LONGEST_SECONDS * machine_factor()


@pytest.mark.parametrize("name", ADDRESSES)
async def test_no_address_holds_the_loop(patient: Served, name: str) -> None:
    path = ADDRESSES[name]

    assert await longest_block(patient, "GET", path, None) < LONGEST_SECONDS * machine_factor()
