"""schemathesis asks the real server everything that its OpenAPI document allows, and more: no
answer may be a defect, or differ from what the document says."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import httpx2
import pytest
import schemathesis
from msgspec import Struct
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.case import Case
from schemathesis.schemas import BaseSchema
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from stepwell.server.asgi import make_asgi
from stepwell.server.routes.openapi import openapi_document
from stepwell.server.services import Services
from stepwell.server.settings import ServerSettings
from stepwell.sessions.settings import SessionSettings
from tests.integration.server.serving import APP_SECRET, headers_of, listening, serving

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    negative_data_rejection,
    ignored_auth,
]
CONFIG = {
    "generation": {"max-examples": 5, "deterministic": True, "database": "none"},
    # It tries every bound of every field, which takes four times as long as all the rest.
    "phases": {"coverage": {"enabled": False}},
}
STREAMS = r"/(events|ag-ui|ai-sdk|stream)"
"""Answers without an end; they have tests of their own."""


class Target(Struct, frozen=True, eq=False):
    """A running server, and what there is on it."""

    url: str
    key: str
    ids: dict[str, str]


@asynccontextmanager
async def served_target(folder: Path) -> AsyncIterator[Target]:
    """A server without limits of rate, with one thing of each kind."""
    server = ServerSettings(app_secret=APP_SECRET, sends_per_second=1e6, send_burst=1_000_000)
    sessions = SessionSettings(max_unfinished_per_user=100_000)
    async with (
        serving(folder, server=server, sessions=sessions) as served,
        listening(served, works=False) as address,
        httpx2.AsyncClient(base_url=address.url, headers=headers_of("ada", admin=True)) as ada,
    ):
        key = (await ada.post("/agent/keys", json={"name": "fuzzer", "is_admin": True})).json()
        spare = (await ada.post("/agent/keys", json={"name": "spare"})).json()
        sent = (await ada.post("/agent/messages", json={"content": "ask"})).json()
        execution = f"/agent/executions/{sent['execution']['id']}"
        await served.work_off()
        snapshots = (await ada.get(f"{execution}/snapshots")).json()["items"]
        ids = {
            "session_id": sent["session"]["id"],
            "execution_id": sent["execution"]["id"],
            "snapshot_id": snapshots[0]["id"],
            "key_id": spare["id"],
        }
        yield Target(address.url, key["secret"], ids)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A server with a worker, in a thread with a loop of its own."""
    folder = tmp_path_factory.mktemp("fuzzed")
    ready = threading.Event()
    found: list[Target] = []
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with served_target(folder) as target:
            found.append(target)
            ready.set()
            await done.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run, name="fuzzed server")
    thread.start()
    try:
        assert ready.wait(90), "the server did not start"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(90)
        assert not thread.is_alive()


def document() -> BaseSchema:
    """What every server says of itself: it depends on no service, so none is there."""
    nothing: Any = None
    services = Services(
        store=nothing,
        agents=nothing,
        intake=nothing,
        lifecycle=nothing,
        reader=nothing,
        authenticate=nothing,
        keys=nothing,
        feeds=nothing,
        stream_tokens=nothing,
    )
    config = SchemathesisConfig.from_dict(CONFIG)
    schema = schemathesis.openapi.from_dict(
        openapi_document(make_asgi(services), root_path=""), config=config
    )
    return schema.exclude(path_regex=STREAMS)


api = document()
asked = count()


def breaks_the_head(case: Case) -> bool:
    """Whether path or headers are wrong on purpose; then they have to stay so."""
    components = {} if case.meta is None else case.meta.components
    return any(
        components[place].mode.is_negative
        for place in (ParameterLocation.PATH, ParameterLocation.HEADER)
        if place in components
    )


def test_the_document_is_valid() -> None:
    api.validate()


@api.parametrize()
def test_every_answer_is_as_the_document_says(case: Case, target: Target) -> None:
    if next(asked) % 2 and not breaks_the_head(case):
        # Made-up ids end at the guard; every second request gets behind it.
        known = {name: target.ids[name] for name in case.path_parameters if name in target.ids}
        case.path_parameters.update(known)
    case.call_and_validate(
        base_url=target.url, headers={"Authorization": f"Bearer {target.key}"}, checks=CHECKS
    )
