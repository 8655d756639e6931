"""``[telemetry]`` in the app server: every agent is traced, under the ids of its session."""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepwell import Agent, UseSubagents, UseTelemetry
from stepwell.app import AgentApp, NewMessage, NewSession, Principal, TelemetryConfig, load_config
from stepwell.cli.log_lines import log_handler
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import ScriptedModel, call

ADA = Principal(user_id="ada")
CANARY = "canary-55e1"
logger = logging.getLogger("stepwell.tests.telemetry")


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What the global provider exports. It is taken away again: FastAPI would trace the requests of
    all tests that follow."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def helper(**parts: Any) -> Agent:
    def turn(request: ModelRequest) -> Any:
        said = sum(message.is_assistant() for message in request.messages)
        spawn = call("spawn_subagent", subagent="critic", prompt=CANARY)
        turns = {"main": [[call("look"), spawn], "Done."], "critic": [call("look"), CANARY]}
        return turns[request.context.messages[-1].text][said]

    critic = AgentSpec(name="critic", description="Judges.", system_prompt="critic")

    def look() -> str:
        """Look."""
        logger.warning("looked")
        return CANARY

    given = {"capabilities": [UseSubagents(AgentRegistry([critic]))], "tools": [look], **parts}
    return Agent(ScriptedModel(turn), system_prompt="main", **given)


def app_of(folder: Path, agent: Agent, **telemetry: bool) -> AgentApp:
    config = replace(
        load_config(folder=folder, environment={}), telemetry=TelemetryConfig(**telemetry)
    )
    return AgentApp({"helper": agent}, db=f"sqlite:///{folder}/a.db").use_config(config)


async def run_once(app: AgentApp) -> Any:
    sent = await app.services.intake.send_message(
        ADA, NewMessage(content=CANARY, new_session=NewSession(agent_type="helper"))
    )
    assert sent.execution is not None
    id = sent.execution.id
    while True:
        row = await app.services.store.read(lambda tx: tx.execution(id))
        assert row is not None
        if row.status.is_terminal:
            return row
        await app.services.clock.sleep(0.02)


def told(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_every_agent_is_traced_under_its_session(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    app = app_of(tmp_path, helper(), enabled=True)
    async with app.running():
        row = await run_once(app)
    finished = spans.get_finished_spans()
    by_id = {span.context.span_id: span.name for span in finished if span.context}
    parents = {(s.name, by_id.get(s.parent.span_id) if s.parent else None) for s in finished}
    assert {
        ("invoke_agent helper", None),
        ("execute_tool look", "invoke_agent helper"),
        ("execute_tool spawn_subagent", "invoke_agent helper"),
        ("invoke_agent critic", "execute_tool spawn_subagent"),
        ("chat scripted", "invoke_agent critic"),
    } <= parents
    assert {told(s)["gen_ai.conversation.id"] for s in finished} == {row.session_id}
    assert {told(s)["stepwell.session.id"] for s in finished} == {row.session_id}
    assert {told(s)["stepwell.attempt"] for s in finished} == {1}
    run = next(s for s in finished if s.name == "invoke_agent helper")
    assert told(run)["stepwell.execution.id"] == row.id
    assert CANARY not in "".join(span.to_json() for span in finished)


async def test_content_is_a_setting_of_its_own(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    async with app_of(tmp_path, helper(), enabled=True, content=True).running() as app:
        await run_once(app)
    assert CANARY in "".join(span.to_json() for span in spans.get_finished_spans())


async def test_without_it_nothing_is_traced_and_the_agent_is_the_same(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    (tmp_path / "off").mkdir()
    (tmp_path / "on").mkdir()
    async with app_of(tmp_path / "off", helper()).running() as app:
        await run_once(app)
        plain = app.agents.get("helper").definition_hash
    assert not spans.get_finished_spans()
    async with app_of(tmp_path / "on", helper(), enabled=True).running() as app:
        assert app.agents.get("helper").definition_hash == plain


async def test_an_agent_that_brings_its_own_telemetry_keeps_it(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    own = Agent(ScriptedModel(["Hi."]), capabilities=[UseTelemetry(name="mine")])
    async with app_of(tmp_path, own, enabled=True).running() as app:
        await run_once(app)
    names = [span.name for span in spans.get_finished_spans()]
    assert sorted(names) == ["chat scripted", "invoke_agent mine"]


async def test_what_a_tool_logs_carries_the_ids(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = log_handler("json")
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(sys.stderr)
    logger.addHandler(handler)
    try:
        async with app_of(tmp_path, helper()).running() as app:
            row = await run_once(app)
    finally:
        logger.removeHandler(handler)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line[:1] == "{"]
    assert [line["message"] for line in lines] == ["looked", "looked"]
    first = lines[0]
    assert (first["session_id"], first["execution_id"]) == (row.session_id, row.id)
    assert (first["attempt"], first["step"]) == (1, 1)
