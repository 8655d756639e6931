"""Replays of agents with hooks of their own: what they write, whom they ask, what they export."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from stepwell import Agent, ErrorPolicy, UseTelemetry, tool
from stepwell.cli.exit_codes import ExitCode
from stepwell.drivers import ReActDriver
from stepwell.drivers.apart import ask_apart
from stepwell.hooks import Hook, HookContext, HookTrigger, make_hook
from stepwell.messages import Message, ToolCall
from stepwell.models import ModelRequest
from stepwell.replay.replay import replay_execution
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.ports import Store
from stepwell.stores.database_url import open_store
from stepwell.testing import ScriptedModel, call
from stepwell.tools import LlmQueryTool, ToolExecutor, ToolOutput, Tools
from tests.integration.cli.command_line import CommandLine
from tests.integration.cli.test_replay import (
    LOOKS,
    NEVER,
    TOO_FAST,
    TOOLS,
    hook_of,
    ran,
    replay,
    script,
    stops_on_apple,
)

pytestmark = pytest.mark.usefixtures("replay_database")

CALLS = [call("look_up", id=f"c{number}", order=number) for number in range(3)]


def counting(trigger: HookTrigger | str, enough: int, by: int = 1, key: str = "n") -> Hook:
    """A guard that counts in the metadata, and stops the run at a number."""

    def counts(context: HookContext) -> HookContext:
        counted = context.state.metadata.get(key, 0) + by
        context = context.with_state(context.state.with_metadata({key: counted}))
        return (
            context.stop("enough", reason="guard", source="counter")
            if counted >= enough
            else context
        )

    return make_hook(trigger, counts, name=f"counts {trigger}")


def begins_with(**metadata: Any) -> Hook:
    def begun(context: HookContext) -> HookContext:
        return context.with_state(context.state.with_metadata(metadata))

    return make_hook(HookTrigger.BEFORE_EXECUTION, begun, name="begins")


NOTES = (call("note", word="pear"), call("note", word="apple"), "Done.")
GUARDS: dict[str, tuple[tuple[Any, ...], list[Hook], dict[str, Any]]] = {
    "after a step": ((*LOOKS, "Done."), [counting("after_step", 4)], {}),
    "in its first step": ((LOOKS[0], "Done."), [counting("after_step", 1)], {}),
    "not before the end": ((*LOOKS[:2], "Done."), [counting("after_step", 9)], {}),
    "before a step": ((*LOOKS, "Done."), [counting("before_step", 4)], {}),
    "before a tool": ((*LOOKS, "Done."), [counting("before_tool", 4)], {}),
    "after a tool": ((*LOOKS, "Done."), [counting("after_tool", 4)], {}),
    "after several tools": ((CALLS, LOOKS[0], "Done."), [counting("after_tool", 4)], {}),
    "before the model": ((*LOOKS, "Done."), [counting("before_inference", 4)], {}),
    "on errors": (
        (call("broken"), LOOKS[0], call("broken"), LOOKS[1], "Done."),
        [counting("on_error", 2)],
        {"max_retries": 5},
    ),
    "on errors and steps": (
        (call("broken"), LOOKS[0], call("broken"), LOOKS[1], "Done."),
        [counting("on_error", 4), counting("after_step", 4)],
        {"max_retries": 5},
    ),
    "two in one key": (
        (*LOOKS, "Done."),
        [counting("after_step", 7), counting("after_step", 7)],
        {},
    ),
    "beside what a tool notes": (NOTES, [counting("after_step", 9), hook_of(stops_on_apple)], {}),
    "what a tool writes over": (NOTES, [begins_with(word=""), hook_of(stops_on_apple)], {}),
    "at the end": ((*LOOKS[:2], "Done."), [counting("after_execution", 9)], {}),
}


@pytest.mark.parametrize(("turns", "hooks", "more"), GUARDS.values(), ids=GUARDS)
async def test_a_guard_that_counts_in_the_metadata_decides_the_same(
    turns: Any, hooks: list[Hook], more: dict[str, Any], tmp_path: Path
):
    id = await ran(Agent(script(*turns), tools=TOOLS, hooks=hooks, **more), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, hooks=hooks, **more), tmp_path)
    assert done.is_same, done
    assert done.steps
    assert not [note for note in done.notes if "stored one is taken" in note]


async def test_a_guard_that_counts_otherwise_is_found(tmp_path: Path):
    def guarded(model: ScriptedModel, by: int) -> Agent:
        return Agent(model, tools=TOOLS, hooks=[counting("after_step", 4, by)])

    id = await ran(guarded(script(*LOOKS, "Done."), by=1), tmp_path)
    done = await replay(id, guarded(NEVER, by=4), tmp_path)
    assert done.steps[0].differences[0] == "it stops (guard), and it went on then"


async def test_a_key_that_tools_and_a_hook_both_write_is_taken_as_stored(tmp_path: Path):
    @tool
    def add(word: str) -> ToolOutput:
        """Keep a word."""
        return ToolOutput(value="kept", metadata={"words": [word]})

    def marks(context: HookContext) -> HookContext:
        words = [*context.state.metadata.get("words", []), "marked"]
        return context.with_state(context.state.with_metadata({"words": words}))

    hooks = [make_hook(HookTrigger.AFTER_STEP, marks, name="marks")]
    turns = (call("add", word="a"), call("add", word="b"), "Done.")
    id = await ran(Agent(script(*turns), tools=[add], hooks=hooks), tmp_path)
    done = await replay(id, Agent(NEVER, tools=[add], hooks=hooks), tmp_path)
    assert done.is_same
    assert [note for note in done.notes if "'words'" in note and "marks" in note], done.notes


async def test_hooks_see_what_tools_of_a_driver_of_its_own_noted(tmp_path: Path):
    def reacting(model: ScriptedModel) -> Agent:
        return Agent(driver=ReActDriver(model), tools=TOOLS, hooks=[hook_of(stops_on_apple)])

    notes = '{"thought": "Hm.", "type": "call_tool", "tool": "note", "args": {"word": "apple"}}'
    answers = '{"thought": "Ah.", "type": "final_answer", "answer": "Done."}'
    id = await ran(reacting(script(notes, answers)), tmp_path)
    done = await replay(id, reacting(NEVER), tmp_path)
    assert done.is_same, done
    assert str(done.steps[0].now.stop_reason) == "guard"


# Asking models


async def by_ask_apart(model: ScriptedModel, context: HookContext) -> str:
    request = ModelRequest(messages=(Message.user("Is it good?"),))
    return (await ask_apart(model, request, context.state)).text


async def by_an_agent(model: ScriptedModel, context: HookContext) -> str:
    return (await Agent(model).run("Is it good?")).final_response


async def by_a_tool(model: ScriptedModel, context: HookContext) -> str:
    made = ToolCall(id="q", name="llm_query", arguments={"prompt": "Is it good?"})
    batch = await ToolExecutor(Tools([LlmQueryTool(model)])).run([made], context.state)
    return batch.executions[0].text


async def by_several_tasks(model: ScriptedModel, context: HookContext) -> str:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(by_ask_apart(model, context)) for _ in range(2)]
    return tasks[0].result()


async def by_who_goes_on_without(model: ScriptedModel, context: HookContext) -> str:
    try:
        return await by_ask_apart(model, context)
    except Exception:  # noqa: BLE001 - a hook that lets nothing stop it
        return "No."


def judged(asks: Any, model: ScriptedModel, trigger: str, *, says_so: bool = False) -> Hook:
    """A hook that lets a model judge each step, and stops the run if it says no."""

    async def judge(context: HookContext) -> HookContext:
        said = await asks(model, context)
        context = context.with_state(context.state.with_metadata({"said": said}))
        return (
            context.stop("not good", reason="guard", source="quality") if said == "No." else context
        )

    return make_hook(trigger, judge, name="judge", asks_model=says_so)


@pytest.mark.parametrize("says_so", [False, True])
@pytest.mark.parametrize("trigger", ["after_step", "after_tool", "before_inference"])
async def test_a_hook_that_asks_a_model_is_refused_and_its_votes_are_as_stored(
    trigger: str, says_so: bool, tmp_path: Path
):
    def with_judge(model: ScriptedModel, critic: ScriptedModel) -> Agent:
        hooks = [judged(by_ask_apart, critic, trigger, says_so=says_so)]
        return Agent(model, tools=TOOLS, hooks=hooks)

    id = await ran(with_judge(script(*LOOKS, "Done."), script("Yes.", "No.", "Yes.")), tmp_path)
    critic = script("No.")
    done = await replay(id, with_judge(NEVER, critic), tmp_path)
    assert done.is_same, done
    assert critic.requests == []
    assert str(done.steps[-1].now.stop_reason) == "guard"
    assert [note for note in done.notes if "judge" in note and "votes are" in note]


ASKING = [by_ask_apart, by_an_agent, by_a_tool, by_several_tasks, by_who_goes_on_without]


@pytest.mark.parametrize("asks", ASKING)
async def test_a_model_is_refused_however_a_hook_asks_it(asks: Any, tmp_path: Path):
    def with_judge(model: ScriptedModel, critic: ScriptedModel) -> Agent:
        return Agent(model, tools=TOOLS, hooks=[judged(asks, critic, "after_step")])

    id = await ran(with_judge(script(LOOKS[0], "Done."), script(*["Yes."] * 4)), tmp_path)
    critic = script("No.")
    done = await replay(id, with_judge(NEVER, critic), tmp_path)
    assert done.is_same, done
    assert critic.requests == []
    assert (
        "hook 'judge' asked a model, which a replay refuses; its votes are as stored" in done.notes
    )


async def test_a_hook_that_asks_when_the_run_is_to_stop_is_refused(tmp_path: Path):
    def with_judge(model: ScriptedModel, critic: ScriptedModel) -> Agent:
        async def judge(context: HookContext) -> HookContext | None:
            if context.state.current_step is None or context.state.step_count > 1:
                return None
            said = await by_an_agent(critic, context)
            return context.request_step("again", source="judge") if said == "No." else None

        return Agent(model, tools=TOOLS, hooks=[make_hook("on_stop", judge, name="judge")])

    id = await ran(with_judge(script("Bad.", "Good."), script("No.")), tmp_path)
    critic = script("Yes.")
    done = await replay(id, with_judge(NEVER, critic), tmp_path)
    assert done.is_same, done
    assert len(done.steps) == 2
    assert critic.requests == []


async def test_hooks_of_the_users_own_are_named(tmp_path: Path):
    seen: list[str] = []

    def mails(context: HookContext) -> None:
        seen.append("a mail")

    hooks = [make_hook(HookTrigger.AFTER_STEP, mails, name="mails")]
    id = await ran(Agent(script("Done."), tools=TOOLS, hooks=hooks), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, hooks=hooks), tmp_path)
    assert len(seen) == 2
    assert "hooks of your own ran for real: mails" in done.notes
    plain = await replay(id, Agent(NEVER, tools=TOOLS), tmp_path)
    assert plain.notes == ()


# What a replay leaves alone


async def test_nothing_is_exported(tmp_path: Path):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    def watched(model: ScriptedModel) -> Agent:
        telemetry = UseTelemetry(tracer_provider=provider)
        return Agent(
            model, tools=TOOLS, capabilities=[telemetry], hooks=[counting("after_step", 3)]
        )

    id = await ran(watched(script(*LOOKS, "Done.")), tmp_path)
    assert exporter.get_finished_spans()
    exporter.clear()
    done = await replay(id, watched(NEVER), tmp_path)
    assert done.is_same, done
    assert exporter.get_finished_spans() == ()


async def test_a_limit_that_raises_is_an_end_like_others(tmp_path: Path):
    limits: dict[str, Any] = {"max_steps": 2, "at_limit": "raise"}
    id = await ran(Agent(script(*LOOKS), tools=TOOLS, **limits), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, **limits), tmp_path)
    assert done.is_same, done
    assert str(done.steps[-1].now.stop_reason) == "steps_limit"


async def test_a_deadline_in_the_wait_before_a_retry_is_met_again(tmp_path: Path):
    # Only with the first wait the second is too long, however slow the machine is between them.
    first, second = (
        type(TOO_FAST)("too fast", kind="rate_limit", retry_after=seconds)
        for seconds in (0.5, 18.9)
    )
    more: dict[str, Any] = {
        "timeout": 19.0,
        "error_policy": ErrorPolicy.retry_all(),
        "model_retries": 0,
    }
    id = await ran(Agent(script(first, LOOKS[0], second, "Done."), tools=TOOLS, **more), tmp_path)
    done = await replay(id, Agent(NEVER, tools=TOOLS, **more), tmp_path)
    assert done.is_same, done
    assert len(done.steps) == 3


class CountingStore:
    """A store that counts how often it is read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.reads = 0

    async def read(self, work: Any) -> Any:
        self.reads += 1
        return await self._store.read(work)


async def test_a_store_is_not_read_once_more_for_each_step(tmp_path: Path):
    more: dict[str, Any] = {
        "max_steps": 90,
        "max_tokens": None,
        "hooks": [counting("after_step", 99)],
    }
    turns = [call("look_up", order=number) for number in range(40)]
    id = await ran(Agent(script(*turns, "Done."), tools=TOOLS, **more), tmp_path)
    store = await open_store(f"sqlite:///{tmp_path}/replay.db", migrate=False)
    try:
        counted: Any = CountingStore(store)
        agents = AgentDirectory({"agent": Agent(NEVER, tools=TOOLS, **more)})
        done = await replay_execution(counted, agents, id)
    finally:
        await store.close()
    assert done.is_same
    assert len(done.steps) == 41
    assert counted.reads < 6


def test_the_model_of_a_replay_needs_no_key(stepwell: CommandLine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    id = stepwell("run", "What time is it?", "--json").document["execution"]["id"]
    done = stepwell("replay", id, "--model", "openai:gpt-5")
    assert done.code == ExitCode.COMPLETED, done.err
    wrong = stepwell("replay", id, "--model", "nobody:gpt-5")
    assert wrong.code == ExitCode.CONFIGURATION
    assert "nobody" in wrong.err
