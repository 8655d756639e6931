"""What the ledger keeps of a model's turn and of a result, and that it keeps out of other runs."""

from datetime import UTC, datetime
from typing import Any

from pydantic import SecretStr

from stepwell.agent import Agent
from stepwell.messages import TextPart, ThinkingPart, ToolCall
from stepwell.models import ModelResponse
from stepwell.serialization.calls import finished_from_json
from stepwell.sessions.directory import AgentDirectory
from stepwell.sessions.ledger import open_step
from stepwell.sessions.ledger.session_ledger import SessionLedger
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import FunctionTool, Tools
from stepwell.tools.results import Finished, blank

AT = datetime(2026, 1, 1, tzinfo=UTC)


def login(name: str, password: SecretStr) -> str:
    """Log in."""
    return name


SECRET = ToolCall(id="l", name="login", arguments={"name": "ada", "password": "hunter2-secret"})
OPEN = ToolCall(id="o", name="look", arguments={"at": "hunter2-secret"})


def kept(response: ModelResponse, made: ToolCall = SECRET) -> ModelResponse:
    ledger = SessionLedger()
    ledger.tools = Tools([FunctionTool(login), MockTool.returning("look", 1)])
    shown = ledger.tools.redact_call(made)
    return ledger._without_secrets(response, shown)  # pyright: ignore[reportPrivateUsage]


def test_a_turn_is_kept_without_the_secrets_of_its_calls() -> None:
    response = ModelResponse(
        text="I use hunter2-secret.",
        tool_calls=(SECRET,),
        thinking=(ThinkingPart("hunter2-secret"),),
        parts=(TextPart("hunter2-secret"), SECRET),
    )
    stored = kept(response)
    assert "hunter2" not in str(stored)
    assert stored.tool_calls[0].arguments == {"name": "ada", "password": "[secret]"}
    assert stored.tool_calls[0].id == "l"


def test_a_turn_without_secrets_is_kept_as_it_is() -> None:
    response = ModelResponse(text="Look.", tool_calls=(OPEN,), thinking=(ThinkingPart("hm"),))
    assert kept(response, OPEN) is response


def test_of_a_secret_call_that_is_not_whole_no_text_is_kept() -> None:
    broken = ToolCall(id="l", name="login", arguments={}, malformed='{"password": "hunter2')
    assert "hunter2" not in str(
        kept(ModelResponse(text='{"password": "hunter2', tool_calls=(broken,)))
    )


def test_a_decision_as_text_is_kept_with_what_may_be_kept() -> None:
    stored = kept(ModelResponse(text='{"args": {"password": "hunter2-secret"}}'))
    assert "hunter2" not in stored.text
    assert '"tool":"login"' in stored.text


def test_a_result_that_json_cannot_hold_is_kept_as_text() -> None:
    ran = blank(OPEN, AT)
    odd: Any = Finished(
        execution=ran.__class__(**{**_fields(ran), "text": "it", "value": object()})
    )
    stored = finished_from_json(open_step._result_document(odd))  # pyright: ignore[reportPrivateUsage]
    assert (stored.execution.text, stored.execution.value) == ("it", None)


def _fields(ran: Any) -> dict[str, Any]:
    return {name: getattr(ran, name) for name in ran.__struct_fields__}


async def test_a_run_that_belongs_to_no_execution_is_left_alone() -> None:
    tool = MockTool.returning("look", "trees")
    agent = Agent(ScriptedModel([call("look", id="1"), "Trees."]), tools=[tool])
    prepared = AgentDirectory({"x": agent}).get("x").agent
    state = await prepared.run("go")
    assert state.final_response == "Trees."
    assert len(tool.calls) == 1
