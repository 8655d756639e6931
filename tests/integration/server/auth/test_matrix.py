"""Every route and channel x everybody who might ask x what is there and whose it is.

Made from the router: a new route is asked about by itself, and one that names something new in its
path fails here until this test knows what that is.
"""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from stepwell.server.policy import CHANNELS, POLICIES, routes_of
from stepwell.server.settings import ServerSettings
from stepwell.sessions.intake.intake import NewMessage
from stepwell.sessions.principal import Principal
from stepwell.testing import FakeClock
from tests.integration.server.auth.asking import Answer, ask, connects
from tests.integration.server.serving import APP_SECRET, Served, serving

PEOPLE = {
    "owner": Principal(user_id="ada", tenant_id="t1"),
    "other user": Principal(user_id="bob", tenant_id="t1"),
    "same name in another tenant": Principal(user_id="ada", tenant_id="t2"),
    "administrator": Principal(user_id="root", tenant_id="t1", is_admin=True),
    "administrator of another tenant": Principal(user_id="root", tenant_id="t2", is_admin=True),
    "revoked": Principal(user_id="ada", tenant_id="t1"),
}
EVERYBODY = ["anonymous", *PEOPLE]
SIGNED_IN = [who for who in PEOPLE if who != "revoked"]
THEIRS = {
    # Whose things each of them may use.
    "owner": {"ada"},
    "other user": set(),
    "same name in another tenant": set(),
    "administrator": {"ada", "eve"},
    "administrator of another tenant": set(),
}
PASSED = "passed"
PUBLIC = {"key": "stepwell", "path": "message_list.js", "number": "1", "model": "helper"}
"""What paths name that is nobody's: the key of the Pusher application, a file of the page."""
ASKED_AS = {"WEBSOCKET", "MOUNT"}


class World(Struct, frozen=True):
    """A server, keys to sign in with, and things: of ada, of eve of the same tenant, of nobody."""

    served: Served
    file: Path
    headers: dict[str, dict[str, str]]
    things: dict[str, dict[str, str]]

    def rows(self) -> list[Any]:
        """All that is in the database."""
        with closing(sqlite3.connect(self.file)) as database:
            names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            return [
                (name, sorted(map(repr, database.execute(f'SELECT * FROM "{name}"'))))
                for (name,) in names.fetchall()
            ]

    async def ask(self, who: str, method: str, path: str, body: bytes = b"{}") -> Answer:
        return await ask(self.served.app, method, path, self.headers[who], body)


async def things_of(served: Served, who: Principal) -> dict[str, str]:
    """A session with an execution that has run, one of its snapshots, and a key."""
    sent = await served.services.intake.send_message(who, NewMessage(content="Add 1 and 2"))
    await served.work_off()
    assert sent.execution is not None
    execution_id = sent.execution.id
    snapshots = await served.services.store.read(lambda tx: tx.snapshots(execution_id))
    key, _ = await served.services.keys.create(who, "a thing")
    return {
        "session_id": sent.session.id,
        "execution_id": execution_id,
        "snapshot_id": snapshots[-1].id,
        "key_id": key.id,
        "key": PUBLIC["key"],
        "chat": sent.session.id,
        "path": PUBLIC["path"],
        "number": PUBLIC["number"],
        "model": PUBLIC["model"],
    }


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    settings = ServerSettings(
        app_secret=APP_SECRET,
        metrics_tenant="t1",
        sends_per_second=10_000,
        send_burst=10_000,
    )
    # Time stands still, so that the use of a key is noted once and never again.
    async with serving(tmp_path, server=settings, clock=FakeClock()) as served:
        headers: dict[str, dict[str, str]] = {"anonymous": {}}
        root = Principal(user_id="setup", is_admin=True)
        for name, who in PEOPLE.items():
            maker = Principal(user_id=root.user_id, tenant_id=who.tenant_id, is_admin=True)
            key, text = await served.services.keys.create(
                maker, name, user_id=who.user_id, is_admin=who.is_admin
            )
            headers[name] = {"authorization": f"Bearer {text}"}
            await served.services.keys.verify(text)
            if name == "revoked":
                await served.services.keys.revoke(key.id, tenant_id=who.tenant_id)
        ada = await things_of(served, PEOPLE["owner"])
        eve = await things_of(served, Principal(user_id="eve", tenant_id="t1"))
        missing = {name: _unlike(id) for name, id in ada.items()}
        missing |= {name: ada[name] for name in PUBLIC}
        yield World(
            served=served,
            file=tmp_path / "test.db",
            headers=headers,
            things={"ada": ada, "eve": eve, "missing": missing},
        )


def _unlike(id: str) -> str:
    """An id of the same form that nothing has."""
    return id[:-6] + ("abcdef" if not id.endswith("abcdef") else "fedcba")


def named_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)(?::\w+)?\}", path)


def filled(path: str, things: dict[str, str]) -> str:
    unknown = [name for name in named_in(path) if name not in things]
    assert not unknown, f"{path} names {unknown}: teach this test what it is and whose"
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda found: things[found[1]], path)


def expected(key: tuple[str, str], who: str, whose: str) -> Any:
    """What the table means, worked out here once more."""
    policy = POLICIES[key]
    if policy.needs == "public":
        return PASSED
    if who in {"anonymous", "revoked"}:
        return 401
    if policy.needs == "operator":
        return PASSED if who == "administrator" else 403
    if policy.needs == "signed_in":
        return PASSED
    return PASSED if whose in THEIRS[who] else 404


def is_as_expected(answer: Answer, wanted: Any) -> bool:
    if wanted == PASSED:
        return answer.status not in {401, 403, 404} and answer.status < 500
    is_problem = answer.headers.get("content-type") == "application/problem+json"
    is_openai_error = answer.body.startswith('{"error":{"message":')
    return answer.status == wanted and (is_problem or is_openai_error)


def asked_routes(world: World) -> Iterator[tuple[str, str]]:
    for route in routes_of(world.served.app):
        if route.key[0] not in ASKED_AS:
            yield route.key


def everything(world: World, people: list[str]) -> Iterator[tuple[str, tuple[str, str], str]]:
    """Who asks, for which route, of whose things."""
    return product(people, list(asked_routes(world)), world.things)


def test_nothing_in_the_table_is_about_something_without_an_owner() -> None:
    for (method, path), policy in POLICIES.items():
        ids = [name for name in named_in(path) if name.endswith("_id")]
        assert bool(ids) == (policy.needs == "owner"), f"{method} {path}"
        if ids:
            assert ids[-1] == f"{policy.of}_id", f"{method} {path}"


async def test_refused_requests_are_answered_by_the_table_and_change_nothing(
    world: World,
) -> None:
    before = world.rows()
    faults: list[str] = []
    refused: Counter[str] = Counter()
    for who, key, whose in everything(world, EVERYBODY):
        wanted = expected(key, who, whose)
        if wanted == PASSED:
            continue
        refused[who] += 1
        answer = await world.ask(who, key[0], filled(key[1], world.things[whose]))
        if not is_as_expected(answer, wanted):
            faults.append(f"{who}, {key} of {whose}: {answer.status} instead of {wanted}")
        if (answer.status == 401) != ("www-authenticate" in answer.headers):
            faults.append(f"{who}, {key} of {whose}: WWW-Authenticate goes with 401")
    assert not faults, "\n".join(faults)
    assert set(refused) == set(EVERYBODY)
    assert min(refused.values()) > 10
    assert world.rows() == before


async def test_allowed_requests_pass(world: World) -> None:
    faults: list[str] = []
    passed: Counter[str] = Counter()
    for who, key, whose in everything(world, EVERYBODY):
        wanted = expected(key, who, whose)
        if wanted != PASSED or not (named_in(key[1]) or whose == "ada"):
            continue
        passed[who] += 1
        answer = await world.ask(who, key[0], filled(key[1], world.things[whose]))
        if not is_as_expected(answer, wanted):
            faults.append(f"{who}, {key} of {whose}: {answer.status} {answer.body[:200]}")
    assert not faults, "\n".join(faults)
    assert set(passed) == set(EVERYBODY)
    assert passed["administrator"] > passed["owner"] > passed["other user"] > passed["anonymous"]


async def test_what_is_foreign_and_what_is_missing_can_not_be_told_apart(world: World) -> None:
    compared: Counter[str] = Counter()
    for who, key, whose in everything(world, SIGNED_IN):
        if whose == "missing" or expected(key, who, whose) != 404:
            continue
        compared[who] += 1
        foreign, missing = [
            _without_ids(
                await world.ask(who, key[0], filled(key[1], world.things[owner])),
                world.things[owner],
            )
            for owner in (whose, "missing")
        ]
        assert foreign == missing, (who, key)
    assert set(compared) == set(SIGNED_IN) - {"administrator"}


def _without_ids(answer: Answer, things: dict[str, str]) -> tuple[Any, ...]:
    body = answer.body
    for name, id in things.items():
        if name not in PUBLIC:
            body = body.replace(id, "ID")
    return answer.status, answer.headers, body


async def test_own_and_foreign_ids_in_one_path_do_not_mix(world: World) -> None:
    """A foreign snapshot below an execution of one's own is not there either."""
    tried = 0
    for who, key, whose in everything(world, ["owner", "administrator"]):
        ids = [name for name in named_in(key[1]) if name.endswith("_id")]
        if whose == "ada" or len(ids) < 2:
            continue
        for foreign in ids:
            tried += 1
            mixed = {**world.things["ada"], foreign: world.things[whose][foreign]}
            answer = await world.ask(who, key[0], filled(key[1], mixed))
            assert answer.status == 404, (key, foreign, who)
    assert tried


async def test_channels_are_signed_for_those_who_may_follow(world: World) -> None:
    routes = [key for key in asked_routes(world) if POLICIES[key].action == "channels.join"]
    assert routes
    before = world.rows()
    for who, (method, path), pattern in product(EVERYBODY, routes, CHANNELS):
        answers: dict[str, Any] = {}
        for whose, things in world.things.items():
            channel = filled(pattern, things)
            body = json.dumps({"socket_id": "1.2", "channel_name": channel}).encode()
            answer = await world.ask(who, method, path, body)
            answers[whose] = _without_ids(answer, things)
            if who in SIGNED_IN:
                may = whose in THEIRS[who]
                assert answer.status == (200 if may else 404), (who, path, channel)
            else:
                assert answer.status == 401
        if who in SIGNED_IN and "ada" not in THEIRS[who]:
            assert answers["ada"] == answers["eve"] == answers["missing"]
    assert world.rows() == before


async def test_sockets_are_public_and_nothing_else_beside_http_is_there(world: World) -> None:
    others = [route.key for route in routes_of(world.served.app) if route.key[0] in ASKED_AS]
    assert others
    for who, (method, path) in product(EVERYBODY, others):
        assert (method, POLICIES[method, path].needs) == ("WEBSOCKET", "public")
        whole = filled(path, world.things["ada"])
        assert await connects(world.served.app, whole, world.headers[who])
        evil = {**world.headers[who], "origin": "https://evil.example"}
        assert not await connects(world.served.app, whole, evil)


async def test_lists_show_only_what_is_theirs(world: World) -> None:
    """Whatever a list without an id in its path shows: no id of somebody else's is in it."""
    shown: Counter[str] = Counter()
    for who, (method, path), whose in everything(world, SIGNED_IN):
        if method != "GET" or named_in(path) or whose == "missing":
            continue
        body = (await world.ask(who, method, path)).body
        things = world.things[whose]
        found = [name for name, id in things.items() if name not in PUBLIC and id in body]
        assert not found or whose in THEIRS[who], f"{path} shows {who} {found} of {whose}"
        shown[who] += len(found)
    assert shown["administrator"] > shown["owner"] > 0
