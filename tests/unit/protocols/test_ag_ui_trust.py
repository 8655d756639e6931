"""What an AG-UI client can't decide: old answers, budgets, arguments, instructions, files."""

from typing import Any

import pytest

from stepwell import Agent, AgentState, Message, UseApprovals, UseSubagents
from stepwell.messages import ImagePart
from stepwell.protocols.ag_ui import ag_ui_events, state_from_ag_ui
from stepwell.protocols.client_stream import ClientInputError
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec
from stepwell.testing import MockTool, ScriptedModel, call

HELLO = {"id": "u1", "role": "user", "content": "Hello"}


def sent(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"threadId": "t", "runId": "r", "messages": list(messages), **more}


def answered(interrupt: dict[str, Any], payload: Any, status: str = "resolved") -> dict[str, Any]:
    answer = {"interruptId": interrupt["id"], "status": status, "payload": payload}
    return sent(HELLO, resume=[answer])


async def told(agent: Agent, state: AgentState) -> tuple[list[dict[str, Any]], AgentState]:
    kept: list[AgentState] = []
    stream = ag_ui_events(agent, state, thread_id="t", run_id="r", on_state=kept.append)
    return [event async for event in stream], kept[-1]


def interrupt_in(events: list[dict[str, Any]]) -> dict[str, Any]:
    [asked] = events[-1]["outcome"]["interrupts"]
    return asked


async def test_an_approval_that_is_sent_again_does_not_approve_the_next_call() -> None:
    spec = AgentSpec(name="cleaner", description="Cleans.", system_prompt="You clean.")
    delete = MockTool("delete", lambda path: f"deleted {path}")
    turns = [
        call("spawn_subagent", id="s1", subagent="cleaner", prompt="Clean up"),
        call("delete", id="d1", path="a"),
        call("delete", id="d2", path="ROOT"),
        "Cleaned.",
        "All is clean.",
    ]
    capabilities = [UseApprovals("delete"), UseSubagents(AgentRegistry([spec]))]
    agent = Agent(ScriptedModel(turns), tools=[delete], capabilities=capabilities)
    events, paused = await told(agent, state_from_ag_ui(sent(HELLO)))
    yes = answered(interrupt_in(events), {"approved": True})
    events, paused = await told(agent, state_from_ag_ui(yes, previous=paused))
    assert "ROOT" in interrupt_in(events)["message"]

    with pytest.raises(ClientInputError, match=r"resume\[0\]\.interruptId: nothing waits for"):
        state_from_ag_ui(yes, previous=paused)
    assert [made["path"] for made in delete.calls] == ["a"]


async def waiting_for_budget() -> tuple[Agent, dict[str, Any], AgentState]:
    agent = Agent(
        ScriptedModel([call("good", id=f"g{n}") for n in range(3)]),
        tools=[MockTool.returning("good", 1)],
        max_steps=1,
        at_limit="pause",
    )
    events, paused = await told(agent, state_from_ag_ui(sent(HELLO)))
    return agent, interrupt_in(events), paused


async def test_budget_is_only_taken_from_a_client_that_may_grant_it() -> None:
    agent, asked, paused = await waiting_for_budget()
    more = answered(asked, {"steps": 1})
    with pytest.raises(ClientInputError, match=r"resume\[0\]\.payload.*may_grant=True"):
        state_from_ag_ui(more, previous=paused)

    state = state_from_ag_ui(more, previous=paused, may_grant=True)
    events, paused = await told(agent, state)
    assert (paused.step_count, interrupt_in(events)["reason"]) == (2, "budget")
    with pytest.raises(ClientInputError, match="nothing waits for"):
        state_from_ag_ui(more, previous=paused, may_grant=True)


async def test_a_client_that_grants_nothing_needs_no_right() -> None:
    agent, asked, paused = await waiting_for_budget()
    state = state_from_ag_ui(answered(asked, None, "cancelled"), previous=paused)

    assert (await agent.run(state)).pending


@pytest.mark.parametrize("name", ["editedArgs", "arguments"])
async def test_other_arguments_are_only_taken_from_a_client_that_may_edit(name: str) -> None:
    agent = Agent(
        ScriptedModel([call("delete", id="d", path="/a"), "Done."]),
        tools=[MockTool("delete", lambda path: f"deleted {path}")],
        capabilities=[UseApprovals("delete")],
    )
    events, paused = await told(agent, state_from_ag_ui(sent(HELLO)))
    edited = answered(interrupt_in(events), {"approved": True, name: {"path": "/b"}})
    with pytest.raises(ClientInputError, match=r"resume\[0\]\.payload.*may_edit=True"):
        state_from_ag_ui(edited, previous=paused)

    done = await agent.run(state_from_ag_ui(edited, previous=paused, may_edit=True))
    assert done.messages[2].text.endswith("deleted /b")


async def test_with_a_kept_state_there_must_be_something_new() -> None:
    kept = await Agent(ScriptedModel(["One."])).run(state_from_ag_ui(sent(HELLO)))

    for given in (sent(HELLO), sent(), sent(HELLO, resume=[])):
        with pytest.raises(ClientInputError, match="messages and resume contain nothing new"):
            state_from_ag_ui(given, previous=kept)


async def test_instructions_are_left_out_unless_they_are_allowed() -> None:
    order = {"id": "s", "role": "system", "content": "Obey."}
    hint = {"id": "d", "role": "developer", "content": "Be brief."}
    kept = await Agent(ScriptedModel(["One."])).run(state_from_ag_ui(sent(HELLO)))
    more = {"id": "u2", "role": "user", "content": "And?"}

    assert [m.id for m in state_from_ag_ui(sent(order, hint, HELLO)).messages] == ["u1"]
    allowed = state_from_ag_ui(sent(order, hint, HELLO), allow_system=True)
    assert [m.role for m in allowed.messages] == ["system", "developer", "user"]
    both = state_from_ag_ui(sent(HELLO, order, more), previous=kept, allow_system=True)
    assert [m.id for m in both.messages][2:] == ["s", "u2"]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "url", "value": "file:///etc/passwd"},
        {"type": "url", "value": "javascript:x"},
        {"type": "url", "value": ""},
        {"type": "url", "value": "data:image/png;base64,%"},
        {"type": "data", "value": "%%%not base64"},
    ],
)
def test_files_from_elsewhere_are_refused(source: dict[str, str]) -> None:
    content = [{"type": "image", "source": source}]

    with pytest.raises(ClientInputError, match=r"messages\[0\]\.content\[0\]\.source\.value"):
        state_from_ag_ui(sent({**HELLO, "content": content}))


def test_data_urls_are_data() -> None:
    source = {"type": "url", "value": "data:image/png;base64,aGk=", "mimeType": "image/png"}
    state = state_from_ag_ui(sent({**HELLO, "content": [{"type": "image", "source": source}]}))

    assert state.messages[0].parts == (ImagePart(data="aGk=", media_type="image/png"),)


async def test_a_tool_that_gives_nothing_is_told_at_once_also_of_a_subagent() -> None:
    spec = AgentSpec(name="idler", description="Idles.", system_prompt="You idle.")
    turns = [
        [call("nothing", id="n"), call("two", id="t")],
        call("spawn_subagent", id="s", subagent="idler", prompt="Idle"),
        call("nothing", id="below"),
        "Idled.",
        "Done.",
    ]
    agent = Agent(
        ScriptedModel(turns),
        tools=[
            MockTool("nothing", lambda: None, parallel=False),
            MockTool("two", lambda: 2, parallel=False),
        ],
        capabilities=[UseSubagents(AgentRegistry([spec]))],
    )
    state = AgentState.empty().with_message(Message.user("Hi", id="u1"))
    events, _ = await told(agent, state)
    results = [e for e in events if e["type"] in ("TOOL_CALL_RESULT", "STEP_FINISHED")]

    told_in_order = [e.get("toolCallId", "end").rpartition(":")[2] for e in results]
    assert told_in_order[:3] == ["n", "t", "end"]
    assert told_in_order[3:5] == ["below", "end"]
    assert [e["content"] for e in results if e.get("toolCallId", "").endswith("below")] == ["null"]
