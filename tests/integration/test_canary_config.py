"""A canary secret in the configuration is nowhere to be found: keys and headers of providers, the
environment and the headers of MCP servers, the variables that a policy gives to commands.
"""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stepwell import (
    Agent,
    AgentStatus,
    FallbackModel,
    ModelSettings,
    SkillLibrary,
    UseBash,
    UseSkills,
)
from stepwell.capabilities.mcp import McpConnectionError, McpServer, UseMcp
from stepwell.capabilities.skills import ShellPreprocessing
from stepwell.events import AgentFailed, ToolCallProgressed
from stepwell.models import RetryingModel
from stepwell.models.provider import Provider, ProviderModel
from stepwell.sandbox import ExecutionPolicy
from stepwell.serialization import AgentStateSerializer
from stepwell.testing import CassetteModel, FakeClock, ScriptedModel, call
from tests.integration.canary import CANARY, Watch, found_in
from tests.servers.byte_server import Answer, ByteServer, Ending
from tests.servers.mcp_server import COMMAND, ROOT, http_server

Log = pytest.LogCaptureFixture
SLASHED = "Qz7rVx2mKb9T/pLw4Ns8dRf6/hJn3gYc5U"
OK = {
    "model": "large",
    "choices": [
        {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi."}}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}
SKILL = "---\nname: tells\ndescription: Tells.\n---\nNothing but !`echo $((${#GIVEN} + 0))`.\n"


def asked_at(server: ByteServer, **settings: Any) -> ProviderModel:
    provider = Provider(name="acme", base_url=f"{server.url}/v1")
    return provider.model("large", **{"api_key": CANARY, **settings})


def complaint(said: str, status: int = 401) -> Answer:
    return Answer.json({"error": {"message": said, "code": "bad", "param": said}}, status=status)


def stream_error(said: str) -> Answer:
    began = {"choices": [{"index": 0, "delta": {"content": "He"}}]}
    events = [began, {"error": {"message": said, "code": 500}}]
    return Answer.sse(*(f"data: {json.dumps(event)}\n\n".encode() for event in events))


ECHOES: dict[str, Callable[[str], Answer]] = {
    "refused": lambda key: complaint(f"Incorrect API key provided: {key}."),
    "as a header": lambda key: complaint(f"authorization: Bearer {key}", 403),
    "far behind": lambda key: complaint("x" * 480 + key, 400),
    "limited": lambda key: complaint(f"slow down, {key}", 429),
    "plain text": lambda key: Answer(status=500, pieces=(f"bad key {key}".encode(),)),
    "not JSON": lambda key: Answer.json(f"<html>{'x' * 180}{key}</html>".encode()),
    "odd JSON": lambda key: Answer.json({"choices": {"key": key}}),
    "redirect": lambda key: Answer(status=302, headers={"location": f"http://a/?key={key}"}),
    "request id": lambda key: Answer.json({"error": {}}, status=500, x_request_id=f"r-{key}"),
    "in the stream": stream_error,
    "broken off": lambda key: complaint(f"key {key}", 500).cut_at(25, Ending.EOF),
}
IN_HEADERS = ("redirect", "request id")


@pytest.mark.parametrize("name", ECHOES)
@pytest.mark.parametrize("wrapped", ["alone", "retried and replaced"])
async def test_a_provider_that_echoes_the_key_is_quoted_without_it(
    name: str, wrapped: str, byte_server: ByteServer, caplog: Log, tmp_path: Path
) -> None:
    byte_server.script(ECHOES[name](CANARY))
    cassette = tmp_path / "cassette.json"
    model: Any = CassetteModel(cassette, asked_at(byte_server), mode="record")
    if wrapped != "alone":
        again = RetryingModel(asked_at(byte_server), max_retries=1, clock=FakeClock())
        model = FallbackModel(model, again, clock=FakeClock())
    watch = Watch(Agent(model), caplog)
    state = await watch.stream()

    assert all(CANARY in r.headers["authorization"] for r in byte_server.requests)
    assert state.status is AgentStatus.FAILED
    (failed,) = watch.events.of(AgentFailed)
    assert failed.exception is not None
    assert any(record.name.startswith("httpcore") for record in caplog.records)
    # The HTTP library logs at DEBUG which headers an answer has, whatever the server put there.
    assert watch.leaks(but="httpcore" if name in IN_HEADERS else None) == []
    assert found_in(cassette.read_text(encoding="utf-8")) == []
    assert found_in([watch.agent.plan, repr(model), repr(vars(asked_at(byte_server)))]) == []


async def test_a_key_with_slashes_is_not_quoted_where_they_are_escaped(
    byte_server: ByteServer, caplog: Log
) -> None:
    body = json.dumps({"error": {"message": f"no such key: {SLASHED}"}}).replace("/", "\\/")
    byte_server.script(Answer.json(body.encode(), status=401))
    watch = Watch(Agent(asked_at(byte_server, api_key=SLASHED)), caplog)
    await watch.run()

    assert "no such key" in repr(watch.states[-1])
    assert watch.leaks(SLASHED) == []


async def test_a_key_given_as_a_function_that_fails_is_not_told(
    byte_server: ByteServer, caplog: Log
) -> None:
    def key() -> str:
        raise LookupError("the vault is closed")

    watch = Watch(Agent(asked_at(byte_server, api_key=key)), caplog)
    state = await watch.run()

    assert state.status is AgentStatus.FAILED
    assert byte_server.requests == []
    assert "raised LookupError" in repr(state)
    assert watch.leaks() == []


async def test_a_key_with_odd_characters_is_not_shown_in_the_complaint() -> None:
    with pytest.raises(ValueError, match="copy it again") as refused:
        Provider(name="acme", base_url="http://a/v1").model("m", api_key=f"{CANARY}\n")
    assert found_in(refused.value) == []


@pytest.mark.parametrize(
    "echoed", [pytest.param(False, id="answered"), pytest.param(True, id="echoed")]
)
async def test_b109_secret_headers_of_requests_are_shown_nowhere(
    echoed: bool, byte_server: ByteServer, caplog: Log
) -> None:
    byte_server.script(complaint(f"bad x-proxy-token {CANARY}") if echoed else Answer.json(OK))
    settings = ModelSettings(extra_headers={"x-proxy-token": CANARY})
    model = asked_at(byte_server, api_key="another-key-altogether")
    watch = Watch(Agent(model, settings=settings), caplog)
    state = await watch.run()

    assert byte_server.requests[0].headers["x-proxy-token"] == CANARY
    assert state.status is (AgentStatus.FAILED if echoed else AgentStatus.COMPLETED)
    assert watch.leaks() == []
    assert CANARY not in repr(watch.agent.plan)
    assert CANARY not in repr(settings)


async def test_b102_times_counters_and_the_model_are_kept_and_its_key_is_not(
    byte_server: ByteServer,
) -> None:
    """B102: SPEC section 5 says what a state holds; of the model's configuration that is which
    model answered, in every step."""
    byte_server.script(Answer.json(OK))
    clock, settings = FakeClock(), ModelSettings(extra_headers={"x-proxy-token": CANARY})
    agent = Agent(asked_at(byte_server), settings=settings, clock=clock)
    state = await agent.run("One")
    clock.advance(2.000003)
    state = await agent.run(replace(state, cumulative_seconds=1.25).with_user_message("Two"))
    document = AgentStateSerializer().to_json(state)
    loaded = AgentStateSerializer().from_json(document)

    assert CANARY in byte_server.requests[1].headers["authorization"]
    assert found_in(document) == []
    assert (loaded.created_at, loaded.updated_at) == (state.created_at, state.updated_at)
    assert loaded.updated_at - loaded.created_at == timedelta(seconds=2.000003)
    assert [recorded.step.model for recorded in loaded.steps] == ["large"]
    assert (loaded.execution_count, loaded.step_count, loaded.cumulative_seconds) == (2, 1, 1.25)
    assert (loaded.usage.total_tokens, loaded.total_failures) == (2, 0)


# MCP servers


def talkative(**settings: Any) -> McpServer:
    args = ["-m", "tests.integration.canary_mcp_server"]
    return McpServer.stdio(COMMAND, args, cwd=ROOT, name="talkative", **settings)


@pytest.mark.parametrize(
    "name",
    [
        "show_environment",
        "show_environment_as_data",
        "fail_with_environment",
        "refuse_with_environment",
        "progress_with_environment",
        "leave_with_environment",
    ],
)
async def test_b109_what_an_mcp_server_is_given_comes_back_nowhere(name: str, caplog: Log) -> None:
    async with talkative(env={"GIVEN": CANARY}) as server:
        agent = Agent(ScriptedModel([call(name), "Done."]), capabilities=[UseMcp(server)])
        watch = Watch(agent, caplog)
        state = await watch.run()
        assert found_in([repr(server), repr(agent.plan)]) == []

    assert state.status is AgentStatus.COMPLETED
    assert state.steps[0].step.tool_executions[0].call.name == name
    assert watch.leaks() == []


async def test_b109_headers_for_an_mcp_server_are_shown_nowhere(caplog: Log) -> None:
    turns = [call("echo", text="hi"), call("fail", why="no"), call("refuse"), "Done."]
    with http_server() as (url, _):
        server = McpServer.http(url, headers={"Authorization": f"Bearer {CANARY}", "x-key": CANARY})
        async with server:
            agent = Agent(ScriptedModel(turns), capabilities=[UseMcp(server)], max_retries=9)
            watch = Watch(agent, caplog)
            state = await watch.run()
            assert found_in([repr(server), repr(agent.plan)]) == []

    assert state.status is AgentStatus.COMPLETED
    assert "hi" in watch.results
    assert any("http" in record.name for record in caplog.records)
    assert watch.leaks() == []


async def test_an_mcp_server_that_cannot_be_reached_is_told_without_its_secrets(
    caplog: Log,
) -> None:
    caplog.set_level(10)
    nowhere = McpServer.http("http://127.0.0.1:9/mcp", headers={"x-key": CANARY})
    broken = McpServer.stdio("no-such-program-here", env={"GIVEN": CANARY})
    for server in (nowhere, broken):
        with pytest.raises(McpConnectionError) as refused:
            await server.__aenter__()
        assert found_in([refused.value, caplog.records, caplog.text]) == []


# Commands


async def test_b109_a_variable_given_to_commands_shows_only_if_a_command_prints_it(
    caplog: Log, tmp_path: Path
) -> None:
    skill = tmp_path / "skills" / "tells" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL, encoding="utf-8")
    policy = ExecutionPolicy.in_(tmp_path, environment={"GIVEN": CANARY})
    turns = [
        call("bash", command="echo ${#GIVEN}; cat nothing"),
        call("load_skill", name="tells"),
        call("bash", command="sleep 30", timeout=1),
        "Done.",
    ]
    skills = UseSkills(SkillLibrary(tmp_path / "skills"), shell=ShellPreprocessing(policy=policy))
    capabilities = [UseBash(execution=policy), skills]
    watch = Watch(Agent(ScriptedModel(turns), capabilities=capabilities), caplog)
    state = await watch.run()

    assert state.status is AgentStatus.COMPLETED
    assert f"\n{len(CANARY)}\n" in watch.results
    assert f"Nothing but {len(CANARY)}." in watch.results
    assert "timed out after 1 seconds" in watch.results
    assert watch.leaks() == []
    assert found_in([repr(watch.agent.plan), repr(policy), repr(capabilities)]) == []

    printing = Agent(
        ScriptedModel([call("bash", command="echo $GIVEN"), "Done."]),
        capabilities=[UseBash(execution=policy)],
    )
    assert found_in(await printing.run("Go"))


async def test_a_variable_given_to_commands_is_on_no_command_line(tmp_path: Path) -> None:
    policy = ExecutionPolicy.in_(tmp_path, environment={"GIVEN": CANARY}, timeout=30)
    seen: list[str] = []

    def look(_: ToolCallProgressed) -> None:
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                seen.append(file.read_bytes().decode(errors="replace"))
            except OSError:
                continue

    command = "echo begun; read -t 2 < /dev/zero; sleep 1.234"
    agent = Agent(
        ScriptedModel([call("bash", command=command), "Done."]),
        capabilities=[UseBash(execution=policy)],
    )
    agent.on_event(ToolCallProgressed, look)
    await agent.run("Go")

    assert any("sleep 1.234" in line for line in seen)
    assert found_in(seen) == []


@pytest.mark.parametrize(
    "wrong", [{"GIVEN": f"{CANARY}\0"}, {"GIVEN": [CANARY]}, {"bad name": CANARY}]
)
def test_a_wrong_variable_is_refused_without_its_value(
    wrong: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="environment") as refused:
        ExecutionPolicy.in_(tmp_path, environment=wrong)
    assert found_in(refused.value) == []
