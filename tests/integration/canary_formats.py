"""Collects every format in which a run can be written, sent or shown, to look for canaries there.

A run is made three times: once heard by all broadcasters with all presets, once as AG-UI events and
once as AI SDK chunks. Every state on the way is written in every format.
"""

import binascii
import io
import json
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from stepwell import (
    Agent,
    AgentRegistry,
    AgentSpec,
    AgentState,
    AgentStatus,
    UseApprovals,
    UseSubagents,
    tool,
)
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.composite import CompositeBroadcaster
from stepwell.broadcasting.broadcasters.console import ConsoleBroadcaster
from stepwell.broadcasting.broadcasters.json_lines import JsonLinesBroadcaster
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.config import BroadcastConfig
from stepwell.messages import ThinkingPart
from stepwell.models import (
    ModelRequest,
    ModelResponse,
    ResponseEnd,
    StreamPart,
    TextDelta,
    ThinkingDelta,
)
from stepwell.protocols.ag_ui import ag_ui_events, encode_sse
from stepwell.protocols.ai_sdk import ai_sdk_chunks
from stepwell.serialization.full import AgentStateSerializer
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.serialization.slim_config import SlimSerializationConfig
from stepwell.testing import ScriptedModel, call
from tests.integration.canary import CANARY, Watch, found_in

FULL = AgentStateSerializer()
SLIM = {
    "minimal": SlimSerializationConfig.minimal(),
    "standard": SlimSerializationConfig.standard(),
    "full": SlimSerializationConfig.full(),
}
PRESETS = {
    "minimal": BroadcastConfig.minimal(),
    "standard": BroadcastConfig.standard(),
    "debug": BroadcastConfig.debug(),
}
DEEPEST = 6
Answer = Callable[[AgentState], AgentState]

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")


def found_deep(value: Any, canary: str = CANARY) -> list[str]:
    """As ``found_in``, and also inside of JSON and base64 that stands in a text."""
    found = found_in(value, canary)
    for path, inner in _inside(value, "", 0):
        found += [f"{path} > {hit}" for hit in found_in(inner, canary)]
    return found


def _inside(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if depth > DEEPEST:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _inside(item, f"{path}[{key!s:.30}]", depth)
    elif isinstance(value, list | tuple):
        for place, item in enumerate(value):
            yield from _inside(item, f"{path}[{place}]", depth)
    elif isinstance(value, str | bytes):
        text = value if isinstance(value, str) else value.decode("latin-1")
        for how, inner in _decoded(text):
            yield f"{path}({how})", inner
            yield from _inside(inner, f"{path}({how})", depth + 1)


def _decoded(text: str) -> Iterator[tuple[str, Any]]:
    """JSON, lines of JSON or of server-sent events, and whatever may be base64."""
    for line in {text, *text.splitlines()}:
        bare = line.removeprefix("data: ").strip()
        if bare.startswith(("{", "[")):
            try:
                yield "json", json.loads(bare)
            except ValueError:
                continue
    for run in _BASE64.findall(text):
        plain = run.rstrip("=").replace("-", "+").replace("_", "/")
        # A run may begin with characters that are not part of what was encoded.
        for start in range(4):
            cut = plain[start:]
            try:
                yield "base64", b64decode(cut[: len(cut) // 4 * 4])
            except binascii.Error:
                continue


def written(states: Sequence[AgentState]) -> dict[str, Any]:
    """The states in every format, and every increment from one to the next."""
    places: dict[str, Any] = {
        "to_json": [FULL.to_json(state) for state in states],
        "serialize": [FULL.serialize(state) for state in states],
        "increments": [FULL.increment_to_json(older, newer) for older, newer in pairwise(states)],
        "explain": [state.explain() for state in states],
    }
    for name, config in SLIM.items():
        slim = SlimAgentStateSerializer(config)
        places[f"slim {name}"] = [slim.serialize(state) for state in states]
        places[f"slim {name} as JSON"] = [json.dumps(slim.serialize(state)) for state in states]
    return places


class Screens:
    """Broadcasters that need no server, one set of them for each preset, and others on top."""

    def __init__(self, folder: Path, *others: Any) -> None:
        self.adapters: list[AgentEventEnvelopeAdapter] = []
        self.recorders: dict[str, RecordingBroadcaster] = {}
        self.consoles: dict[str, io.StringIO] = {}
        self._folder, self._others = folder, others
        self._files: list[JsonLinesBroadcaster] = []

    def follow(self, agent: Agent) -> None:
        """Broadcast what this agent does next."""
        for preset, config in PRESETS.items():
            self.recorders[preset] = RecordingBroadcaster()
            self.consoles[preset] = io.StringIO()
            file = JsonLinesBroadcaster(self._folder / f"{preset}.jsonl")
            self._files.append(file)
            console = ConsoleBroadcaster(self.consoles[preset], color=True)
            all_of_them = CompositeBroadcaster(self.recorders[preset], file, console, *self._others)
            adapter = AgentEventEnvelopeAdapter(all_of_them, "session-1", "run-1", config)
            self.adapters.append(adapter)
            agent.wiretap(adapter.wiretap())

    async def seen(self) -> dict[str, Any]:
        """What came to them."""
        for adapter in self.adapters:
            await adapter.flush()
        for file in self._files:
            file.close()
        places: dict[str, Any] = {"adapters": [repr(vars(adapter)) for adapter in self.adapters]}
        for preset, recorder in self.recorders.items():
            assert recorder.envelopes, "nothing was broadcast, so nothing can be found"
            lines = (self._folder / f"{preset}.jsonl").read_text(encoding="utf-8")
            assert len(lines.splitlines()) == len(recorder.envelopes)
            places[f"envelopes {preset}"] = recorder.envelopes
            places[f"text {preset}"] = _joined(e["payload"] for e in recorder.envelopes)
            places[f"lines {preset}"] = lines
            places[f"console {preset}"] = self.consoles[preset].getvalue()
        return places


def _joined(told: Iterable[Mapping[str, Any]]) -> str:
    """Streamed text as a client puts it together: a secret may be cut in two."""
    return "".join(str(one.get("content") or one.get("delta") or "") for one in told)


class Formats:
    """All formats of one scenario; ``places`` says where to look."""

    def __init__(self, caplog: pytest.LogCaptureFixture, folder: Path, *others: Any) -> None:
        self.places: dict[str, Any] = {}
        self.states: list[AgentState] = []
        self._caplog = caplog
        self._screens = Screens(folder, *others)

    async def collect(self, make: Callable[[], Agent], answer: Answer | None = None) -> AgentState:
        """Run the agent that ``make`` makes in every way; ``answer`` goes on after a pause."""
        watch = Watch(make(), self._caplog)
        self._screens.follow(watch.agent)
        state = await watch.run("Go")
        if answer is not None:
            assert state.status is AgentStatus.PAUSED
            watch.states.append(answer(state))
            state = await watch.run(watch.states[-1])
        self.states = watch.states
        self.places |= written(watch.states)
        self.places |= await self._screens.seen()
        self.places |= await _for_clients("ag_ui", make, answer)
        self.places |= await _for_clients("ai_sdk", make, answer)
        self.places["events"] = list(watch.events.events)
        self.places["agent"] = [repr(watch.agent), repr(watch.agent.plan)]
        return state

    def leaks(self, canary: str = CANARY, *, but: str = "-") -> list[str]:
        """Where the canary is, ``but`` in what a library logs."""
        return [
            hit for name in self.places_with(canary, but=but) for hit in self._hits(name, canary)
        ]

    def places_with(self, canary: str = CANARY, *, but: str = "-") -> list[str]:
        """The names of the formats in which it is."""
        records = [r for r in self._caplog.records if not r.name.startswith(but)]
        self.places["logs"] = [records, [self._caplog.handler.format(r) for r in records]]
        return [name for name in self.places if self._hits(name, canary)]

    def _hits(self, name: str, canary: str) -> list[str]:
        return [f"{name}{hit}" for hit in found_deep(self.places[name], canary)]


async def _for_clients(
    protocol: str, make: Callable[[], Agent], answer: Answer | None
) -> dict[str, Any]:
    """The same run as a client reads it, and the states that were kept for it."""
    agent, states = make(), list[AgentState]()
    told = [one async for one in _read(protocol, agent, "Go", states)]
    if answer is not None:
        states.append(answer(states[-1]))
        told += [one async for one in _read(protocol, agent, states[-1], states)]
    assert told, "nothing was told, so nothing can be found"
    assert states
    lines = [encode_sse(one) for one in told] if protocol == "ag_ui" else [json.dumps(told)]
    return {
        protocol: told,
        f"{protocol} as text": lines,
        f"{protocol} text": _joined(told),
        f"{protocol} states": [FULL.serialize(state) for state in states],
    }


def _read(
    protocol: str, agent: Agent, task: str | AgentState, states: list[AgentState]
) -> AsyncIterator[dict[str, Any]]:
    if protocol == "ag_ui":
        return ag_ui_events(agent, task, thread_id="t", run_id="r", on_state=states.append)
    return ai_sdk_chunks(agent, task, on_state=states.append)


# Agents with secrets, and what hears them


def door(given: list[str]) -> Any:
    """A tool that says its secret; it also works without one."""

    @tool
    def unlock(code: SecretStr | None = None, door: str = "front") -> str:
        """Open a door."""
        given.append("" if code is None else code.get_secret_value())
        return f"opened {door} with {given[-1]}"

    return unlock


class Talkative:
    """A model that says or thinks its secret argument before it gives it."""

    name = "talkative"

    def __init__(self, how: str) -> None:
        self._thinks = how == "thinking"
        self._asked = 0

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """It makes its call first."""
        self._asked += 1
        if self._asked > 1:
            return ModelResponse(text="Done.")
        said = f"I try {CANARY} at the door."
        return ModelResponse(
            text="" if self._thinks else said,
            thinking=(ThinkingPart(text=said),) if self._thinks else (),
            tool_calls=(call("unlock", id="c1", code=CANARY),),
        )

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamPart]:
        """The same by its parts."""
        response = await self.respond(request)
        for part in response.thinking:
            yield ThinkingDelta(part.text)
        for at in range(0, len(response.text), 5):
            yield TextDelta(response.text[at : at + 5])
        yield ResponseEnd(response)


def asking(depth: int, given: list[str], **arguments: str) -> Agent:
    """An agent, or a subagent so deep, that wants to open a door."""
    helper = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    spawn = [
        call("spawn_subagent", id=f"s{level}", subagent="helper", prompt="Open.")
        for level in range(depth)
    ]
    turns = [*spawn, call("unlock", id="c1", **arguments), *["Opened."] * depth, "Done."]
    approvals, subagents = UseApprovals("unlock"), UseSubagents(AgentRegistry([helper]))
    return Agent(ScriptedModel(turns), tools=[door(given)], capabilities=[approvals, subagents])


def shown(state: AgentState) -> dict[str, Any]:
    """The state in the slim format."""
    return {name: SlimAgentStateSerializer(it).serialize(state) for name, it in SLIM.items()}


@asynccontextmanager
async def redis_heard(url: str) -> AsyncIterator[list[Any]]:
    """What is published while the block lasts."""
    redis = pytest.importorskip("redis.asyncio", reason="the extra stepwell[redis] is missing")
    heard: list[Any] = []
    async with redis.Redis.from_url(url) as client, client.pubsub() as pubsub:
        await pubsub.psubscribe("*")
        await pubsub.get_message(timeout=10)
        yield heard
        while (message := await pubsub.get_message(timeout=0.5)) is not None:
            heard.append((message["channel"], message["data"]))
