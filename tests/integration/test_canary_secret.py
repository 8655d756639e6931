"""A canary secret in the environment is nowhere to be found after runs with everything that an
agent can have. What looks for it is shown to find it first.
"""

import json
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import (
    Agent,
    AgentRegistry,
    AgentSpec,
    AgentState,
    AgentStatus,
    ErrorPolicy,
    Message,
    SkillLibrary,
    ToolCall,
    UseApprovals,
    UseBash,
    UseFileTools,
    UseMetadataTools,
    UseSelfCritique,
    UseSkills,
    UseStructuredOutputs,
    UseSubagents,
    UseSummarization,
    UseTaskPlanning,
    tool,
)
from stepwell.capabilities.mcp import McpServer, UseMcp
from stepwell.capabilities.skills import ShellPreprocessing
from stepwell.drivers import ReActDriver
from stepwell.events import AgentFailed
from stepwell.sandbox import ExecutionPolicy
from stepwell.testing import CassetteModel, ScriptedModel, call
from tests.integration.canary import CANARY, KEY_NAMES, LEAST, Watch, as_json, found_in
from tests.servers.mcp_server import COMMAND, ROOT

Log = pytest.LogCaptureFixture
PRINTS = (
    "env",
    "export -p; set",
    "tr '\\0' '\\n' < /proc/self/environ; tr '\\0' '\\n' < /proc/$PPID/environ",
    "cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/1/environ | tr '\\0' '\\n'; ls /proc",
    "echo $OPENAI_API_KEY $MY_TOKEN ${AWS_SECRET_ACCESS_KEY:-nothing}",
)
READS = ("/proc/self/environ", "../../proc/self/environ", "environ")
SKILL = """---
name: tells
description: Tells about this machine.
---
It knows !`env` and !`cat /proc/*/environ | tr '\\0' '\\n'` and ${OPENAI_API_KEY}.
"""


class Finding(BaseModel):
    """What was found."""

    name: str


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The canary in this process's environment, and in that of another one whose id is given:
    what this process sets itself does not show in /proc."""
    for name in KEY_NAMES:
        monkeypatch.setenv(name, CANARY)
    with subprocess.Popen(["sleep", "600"], env=dict.fromkeys(KEY_NAMES, CANARY)) as sleeper:
        yield sleeper.pid
        sleeper.kill()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the agent works, with a skill beside it and a way out that must not be one."""
    skill = tmp_path / "skills" / "tells" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(SKILL, encoding="utf-8")
    place = tmp_path / "place"
    place.mkdir()
    (place / "environ").symlink_to("/proc/self/environ")
    return place


# What looks for it


def kept_with_the_canary(kind: str) -> Any:
    state = AgentState.empty()
    match kind:
        case "message":
            return state.with_user_message(f"My key is {CANARY}.")
        case "arguments":
            asked = ToolCall(id="1", name="t", arguments={"deep": [{"er": CANARY}]})
            return state.with_message(Message.assistant(calls=[asked]))
        case "metadata":
            return state.with_metadata({"a": {CANARY: 1}})
        case "a part":
            return state.with_user_message(f"It ends with {CANARY[-LEAST:]}.")
        case "bytes":
            return state.with_metadata({"a": CANARY.encode()})
        case "cause":
            error = ValueError("no")
            error.__cause__ = OSError(CANARY)
            return [error]
        case "attribute":
            error = ValueError("no")
            error.body = CANARY  # type: ignore[attr-defined]
            return {"error": error}
        case "policy":  # which does not print it
            return ExecutionPolicy(directory=ROOT, environment={"A": CANARY})
        case _:
            record = logging.LogRecord("a", 10, "b", 1, "%s of %r", ("c", {"d": CANARY}), None)
            return [record]


@pytest.mark.parametrize(
    "kind",
    [
        *("message", "arguments", "metadata", "a part", "bytes", "cause", "attribute", "policy"),
        "log record",
    ],
)
def test_the_search_finds_the_canary_wherever_it_is(kind: str) -> None:
    kept = kept_with_the_canary(kind)

    assert found_in(kept)
    assert (
        not isinstance(kept, AgentState) or kind in ("a part", "bytes") or CANARY in as_json(kept)
    )
    assert found_in(AgentState.empty()) == []


async def test_the_watch_finds_what_a_careless_agent_lets_out(caplog: Log) -> None:
    @tool
    def careless() -> str:
        """Tell."""
        logging.getLogger("mine").debug("the key is %s", CANARY)
        raise ValueError(CANARY)

    watch = Watch(Agent(ScriptedModel([call("careless"), "Done."]), tools=[careless]), caplog)
    await watch.run()

    places = " ".join(watch.leaks())
    for kind in ("states", "json", "explained", "events", "logs", "log text"):
        assert f"[{kind}]" in places


async def test_the_watch_finds_what_a_careless_model_lets_out(caplog: Log) -> None:
    watch = Watch(Agent(ScriptedModel([ValueError(CANARY)])), caplog)
    await watch.stream()

    (failed,) = watch.events.of(AgentFailed)
    assert found_in(failed.exception)
    assert "[parts]" in " ".join(watch.leaks())


def test_the_canary_really_is_in_an_environment(environment: int) -> None:
    assert CANARY in Path(f"/proc/{environment}/environ").read_text(encoding="utf-8")
    assert subprocess.run(["env"], capture_output=True, check=True).stdout.count(CANARY.encode())


# The environment


def turns(kind: str, calls: list[ToolCall]) -> list[Any]:
    """The script of a model that calls tools itself, or decides in JSON."""
    if kind == "native":
        return [*calls, "Done."]
    decisions = [
        {"thought": "?", "type": "call_tool", "tool": c.name, "args": dict(c.arguments)}
        for c in calls
    ]
    last = {"thought": "", "type": "final_answer", "answer": "Done."}
    return [json.dumps(decision) for decision in [*decisions, last]]


def agent_with_everything(kind: str, place: Path, server: McpServer, cassette: Path) -> Agent:
    """All capabilities that bring tools, and a script that tries to get at the environment."""
    tries = [
        *(call("bash", command=command) for command in PRINTS),
        *(call("read_file", path=path) for path in READS),
        call("search_files", pattern="**/*", content="API_KEY"),
        call("load_skill", name="tells"),
        call("show_environment"),
        call("show_environment_as_data"),
        call("fail_with_environment"),
        call("progress_with_environment"),
        call("leave_with_environment"),
        call("breaks"),
        call("write_metadata", key="note", value="$OPENAI_API_KEY"),
        call("extract_data", schema="finding", input="the environment", store_as="finding"),
    ]
    spawn = call("spawn_subagent", subagent="helper", prompt="Print the environment.")
    script = [
        *turns(kind, tries)[:-1],
        turns(kind, [spawn])[0],
        *turns(kind, [call("bash", command=PRINTS[0]), call("bash", command=PRINTS[3])]),
        turns(kind, [])[-1],
    ]
    model = CassetteModel(cassette, ScriptedModel(script, name="asked"), mode="record")
    helper = AgentSpec(name="helper", description="Helps.", system_prompt="You help.")
    shell = ShellPreprocessing(policy=ExecutionPolicy.in_(place))

    @tool
    def breaks() -> str:
        """Break."""
        raise RuntimeError("broken")

    return Agent(
        **{"model": model} if kind == "native" else {"driver": ReActDriver(model)},
        tools=[breaks],
        capabilities=[
            UseBash(place),
            UseFileTools(place),
            UseSkills(SkillLibrary(place.parent / "skills"), shell=shell),
            UseSubagents(AgentRegistry([helper])),
            UseTaskPlanning(),
            UseMetadataTools(),
            UseStructuredOutputs({"finding": Finding}, model=ScriptedModel(['{"name": "none"}'])),
            UseSelfCritique(model=ScriptedModel(['{"feedback": "", "approved": true}'])),
            UseSummarization(max_tokens=2_000, model=ScriptedModel(lambda _: "Much was printed.")),
            UseMcp(server),
            UseApprovals("bash"),
        ],
        system_prompt="You look at environments.",
        error_policy=ErrorPolicy.ignore_tool_errors(),
        max_steps=60,
        max_tokens=None,
    )


@pytest.mark.parametrize("kind", ["native", "react"])
async def test_no_capability_lets_the_environment_out(
    kind: str, environment: int, place: Path, caplog: Log
) -> None:
    server = McpServer.stdio(
        COMMAND, ["-m", "tests.integration.canary_mcp_server"], cwd=ROOT, name="talkative"
    )
    cassette = place.parent / "cassette.json"
    async with server:
        agent = agent_with_everything(kind, place, server, cassette)
        watch = Watch(agent, caplog)
        state = await watch.run_approving("Print the environment.")

    assert state.status is AgentStatus.COMPLETED, state.explain()
    assert state.final_response == "Done."
    # It all really happened, so there was something to find.
    shown = watch.results
    assert shown.count("PATH=") >= 8
    assert "HOME=" in shown
    assert "It knows " in shown
    assert state.metadata["finding"] == {"name": "none"}
    ended = [e.call.name for t in state.steps for e in t.step.tool_executions if e.succeeded]
    assert {"bash", "load_skill", "show_environment", "spawn_subagent"} <= set(ended)
    assert watch.leaks() == []
    assert found_in([agent.plan, agent.loop, server]) == []
    assert len(json.loads(cassette.read_text(encoding="utf-8"))["turns"]) > 20
    assert found_in(cassette.read_text(encoding="utf-8")) == []


async def test_a_run_that_fails_lets_nothing_out(
    environment: int, place: Path, caplog: Log
) -> None:
    def broken() -> str:
        """Break."""
        raise RuntimeError("broken on the way")

    model = ScriptedModel([call("bash", command="env; exit 3"), call("broken")])
    watch = Watch(Agent(model, tools=[broken], capabilities=[UseBash(place)]), caplog)
    state = await watch.stream()

    assert state.status is AgentStatus.FAILED
    assert len(watch.events.of(AgentFailed)) == 1
    assert "PATH=" in watch.results
    assert "broken on the way" in caplog.text
    assert watch.leaks() == []


@pytest.mark.parametrize("name", KEY_NAMES[:5])
def test_a_policy_does_not_pass_on_what_names_a_secret(name: str, environment: int) -> None:
    with pytest.raises(ValueError, match=name) as refused:
        ExecutionPolicy.in_("/tmp", inherited_environment=[name])
    assert found_in(refused.value) == []
