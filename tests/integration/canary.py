"""Finds a canary secret in whatever a run leaves behind: states, events, logs, tracebacks, files.

It looks at every field of every struct and not only at what prints, and for parts of the canary and
for its usual encodings as well.
"""

import json
import logging
import traceback
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from msgspec import Struct

from stepwell import Agent, AgentState, AgentStatus, Final, StepCompleted
from stepwell.testing import EventRecorder

CANARY = "Qz7rVx2mKb9TpLw4Ns8dRf6hJn3gYc5U"
LEAST = 12
"""So many characters in a row of a canary are a leak as well."""
PIECE = 8
Seen = dict[int, Any]

KEY_NAMES = (
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY"),
    *("MY_TOKEN", "DATABASE_URL", "GITHUB_TOKEN", "STEPWELL_UNKNOWN_NAME", "HTTPS_PROXY_PASSWORD"),
)


def forms_of(canary: str) -> list[str]:
    """The canary in pieces, and as it looks encoded."""
    pieces = [canary[at : at + PIECE] for at in range(0, len(canary) - PIECE + 1, LEAST - PIECE)]
    encoded = [
        b64encode(canary.encode()).decode().rstrip("=")[:-1],
        canary.encode().hex(),
        json.dumps(canary)[1:-1],
        repr(canary)[1:-1],
        quote(canary, safe=""),
    ]
    return [*pieces, *encoded]


def found_in(value: Any, canary: str = CANARY) -> list[str]:
    """Where in a value the canary is, as paths; none if it is nowhere."""
    forms = forms_of(canary)
    return [
        f"{path}: {text[:200]!r}"
        for path, text in _texts(value, "", {})
        if any(form in text for form in forms)
    ]


def _texts(value: Any, path: str, seen: Seen) -> Iterator[tuple[str, str]]:
    """Every text in a value, with the way to it. What was ``seen`` is kept, so that no other object
    gets its id; states share most of what they hold, and it is looked at once."""
    if isinstance(value, str):
        yield path, str(value)
        return
    if isinstance(value, bytes):
        yield path, value.decode("latin-1")
        return
    if id(value) in seen:
        return
    seen[id(value)] = value
    if not isinstance(value, list | tuple | Mapping):
        yield f"{path}.repr", repr(value)
    if isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield from _texts(getattr(value, name), f"{path}.{name}", seen)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(key, f"{path}.key", seen)
            yield from _texts(item, f"{path}[{key!s:.30}]", seen)
    elif isinstance(value, BaseException):
        yield from _of_exception(value, path, seen)
    elif isinstance(value, logging.LogRecord):
        yield from _of_record(value, path, seen)
    elif isinstance(value, Iterable) and not isinstance(value, Iterator):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]", seen)


def _of_exception(error: BaseException, path: str, seen: Seen) -> Iterator[tuple[str, str]]:
    yield f"{path}.str", str(error)
    yield f"{path}.traceback", "".join(traceback.format_exception(error))
    for part in (error.args, dict(vars(error)), error.__cause__, error.__context__):
        yield from _texts(part, f"{path}.{type(error).__name__}", seen)


def _of_record(record: logging.LogRecord, path: str, seen: Seen) -> Iterator[tuple[str, str]]:
    path = f"{path}.{record.name}"
    yield path, record.getMessage()
    yield f"{path}.exc_text", record.exc_text or ""
    yield from _texts(record.args, f"{path}.args", seen)
    if record.exc_info:
        yield from _texts(record.exc_info[1], f"{path}.exc_info", seen)


def as_json(state: AgentState) -> str:
    """The whole state as JSON, as far as it can be written today."""

    def plain(value: Any) -> Any:
        return list(value) if isinstance(value, Iterable) else repr(value)

    return msgspec.json.encode(state, enc_hook=plain).decode()


class Watch:
    """An agent whose every state, event and log record is kept."""

    def __init__(self, agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        self._caplog = caplog
        self.agent = agent
        self.events = EventRecorder()
        self.states: list[AgentState] = []
        self.parts: list[Any] = []
        agent.wiretap(self.events)

    async def run(self, task: str | AgentState = "Go") -> AgentState:
        """Run to the end or to a question, step by step."""
        async for state in self.agent.iterator(task):
            self.states.append(state)
        return self.states[-1]

    async def stream(self, task: str | AgentState = "Go") -> AgentState:
        """The same by its parts."""
        async for part in self.agent.stream(task):
            self.parts.append(part)
            if isinstance(part, StepCompleted | Final):
                self.states.append(part.state)
        return self.states[-1]

    async def run_approving(self, task: str = "Go") -> AgentState:
        """Run to the end, and say yes whenever a call waits."""
        state = await self.run(task)
        while state.status is AgentStatus.PAUSED:
            for pending in state.pending:
                state = state.with_answer(pending, True)
            self.states.append(state)
            state = await self.run(state)
        return state

    @property
    def results(self) -> str:
        """What the model was shown of all tools."""
        steps = self.states[-1].steps
        return "\n".join(e.text for taken in steps for e in taken.step.tool_executions)

    def leaks(self, canary: str = CANARY, *, but: str | None = None) -> list[str]:
        """Where the canary is to be found, ``but`` in what a library logs."""
        assert self.states, "nothing ran, so nothing can be found"
        assert self.events.events
        records = [r for r in self._caplog.records if not (but and r.name.startswith(but))]
        places = {
            "states": self.states,
            "json": [as_json(state) for state in self.states],
            "explained": [state.explain() for state in self.states],
            "events": self.events.events,
            "parts": self.parts,
            "logs": records,
            "log text": [self._caplog.handler.format(record) for record in records],
        }
        return found_in(places, canary)
