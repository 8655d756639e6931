"""Arguments marked secret reach the tool, and nothing else."""

import json
import logging
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from stepwell import (
    Agent,
    AgentState,
    AgentStatus,
    BaseTool,
    HookContext,
    InputRequired,
    ModelResponse,
    StopReason,
    ToolCall,
    ToolContext,
    ToolFailure,
    ToolOutput,
    Tools,
    make_hook,
    tool,
)
from stepwell.continuation import AgentStop, StopSignal
from stepwell.drivers import ReActDriver
from stepwell.events import InferenceResponseReceived
from stepwell.secrets import HIDDEN
from stepwell.testing import (
    DeterministicAgentDriver,
    EventRecorder,
    ScenarioStep,
    ScriptedModel,
    call,
)
from stepwell.tools.secret_arguments import secret_arguments

CANARY = "hunter2-canary-0f3a"


class Login(BaseModel):
    user: str
    password: SecretStr


@tool
def sign_in(user: str, password: SecretStr, context: ToolContext) -> ToolOutput:
    """Sign in."""
    assert password.get_secret_value() == CANARY
    assert CANARY not in repr(context.call)
    return ToolOutput(
        value={"echo": f"{user}:{CANARY}", "list": [CANARY]}, metadata={"last": CANARY}
    )


@tool
def fails(password: SecretStr | None = None) -> str:
    """Fail."""
    raise ValueError(f"the server refused {CANARY}")


@tool
def refuses(login: Login) -> ToolFailure:
    """Refuse."""
    return ToolFailure(f"wrong password {login.password.get_secret_value()}", {"said": CANARY})


@tool
def asks(password: SecretStr) -> InputRequired:
    """Ask."""
    return InputRequired(
        prompt=f"Really {CANARY}?",
        details={"password": CANARY},
        resumes=True,
        kept={"then": [password.get_secret_value()]},
    )


@tool
def uses_tokens(tokens: dict[SecretStr, Any], note: str = "") -> dict[str, Any]:
    """Use tokens."""
    return {token.get_secret_value(): note for token in tokens}


@tool
def uses_nested(accounts: dict[str, dict[str, SecretStr]], context: ToolContext) -> str:
    """Use accounts."""
    context.progress(str(list(accounts)))
    return f"used {list(accounts)}"


TOOLS = [sign_in, fails, refuses, asks, uses_tokens, uses_nested]
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("sign_in", {"user": "ada", "password": CANARY}),
    ("fails", {"password": CANARY}),
    ("refuses", {"login": {"user": "ada", "password": CANARY}}),
    ("asks", {"password": CANARY}),
    ("sign_in", {"user": "ada", "password": [CANARY * 40]}),
    ("sign_in", {"user": "ada", "password": CANARY, "extra": 1}),
    ("uses_tokens", {"tokens": {CANARY: 1}, "note": f"for {CANARY}"}),
    ("uses_tokens", {"tokens": {CANARY: {"deep": [{CANARY: 1}]}}, CANARY: 2}),
    ("uses_tokens", {"tokens": [{CANARY: 1}]}),
    ("uses_nested", {"accounts": {CANARY: {"password": "long-enough"}}}),
]


def everything(state: AgentState, events: EventRecorder, caplog: pytest.LogCaptureFixture) -> str:
    return repr(state) + repr(events.events) + caplog.text + repr(caplog.records)


@pytest.mark.parametrize(("name", "arguments"), CALLS)
@pytest.mark.parametrize("kind", ["native", "react", "scripted"])
async def test_a_secret_argument_is_nowhere_to_be_found(
    name: str, arguments: dict[str, Any], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    decision = {"thought": "?", "type": "call_tool", "tool": name, "args": arguments}
    parts: dict[str, Any] = {
        "native": {"model": ScriptedModel([call(name, id="c1", **arguments), "Done."])},
        "react": {
            "driver": ReActDriver(
                ScriptedModel(
                    [json.dumps(decision), '{"thought": "", "type": "final_answer", "answer": "D"}']
                )
            )
        },
        "scripted": {
            "driver": DeterministicAgentDriver.from_steps(
                ScenarioStep.tool_call(name, arguments), ScenarioStep.final("Done.")
            )
        },
    }
    events = EventRecorder()
    agent = Agent(**parts[kind], tools=TOOLS, max_retries=3)
    agent.wiretap(events)
    state = await agent.run("Sign me in")

    assert state.steps[0].step.tool_executions[0].call.name == name
    assert CANARY not in everything(state, events, caplog)
    assert HIDDEN in repr(state.messages)


async def test_a_secret_key_is_removed_from_the_text_but_a_declared_field_name_stays() -> None:
    login = call("refuses", id="c1", login={"user": "ada-lovelace", "password": CANARY})
    tokens = call("uses_tokens", id="c2", tokens={"key-of-the-vault": "value-1"}, note="password")
    text = "The password of user ada-lovelace opens key-of-the-vault."
    response = ModelResponse(text=text, tool_calls=(login, tokens))
    state = await Agent(ScriptedModel([response, "Done."]), tools=TOOLS).run("Go")

    assert state.messages[1].text == "The password of user [secret] opens [secret]."
    assert dict(state.messages[1].tool_calls[1].arguments) == {"tokens": HIDDEN, "note": "password"}
    assert state.messages[3].text == '{"[secret]":"password"}'


async def test_what_is_not_marked_stays_as_it_is() -> None:
    model = ScriptedModel([call("sign_in", id="c1", user="ada", password=CANARY), "Done."])
    state = await Agent(model, tools=TOOLS).run("Sign me in")

    kept = state.messages[1].tool_calls[0].arguments
    assert dict(kept) == {"user": "ada", "password": HIDDEN}
    assert state.messages[2].text == '{"echo":"ada:[secret]","list":["[secret]"]}'
    assert state.metadata["last"] == HIDDEN


async def test_broken_arguments_of_such_a_tool_are_not_shown() -> None:
    broken = ToolCall(id="c1", name="sign_in", arguments={}, malformed=f'{{"password": "{CANARY}')
    agent = Agent(ScriptedModel([broken, "Sorry."]), tools=TOOLS, max_retries=3)
    state = await agent.run("Sign me in")

    assert CANARY not in repr(state)
    assert "not a JSON object" in state.messages[2].text


async def test_a_secret_copied_from_the_history_is_refused_with_words() -> None:
    model = ScriptedModel([call("sign_in", id="c1", user="ada", password=HIDDEN), "Sorry."])
    state = await Agent(model, tools=TOOLS, max_retries=3).run("Sign me in")

    assert "password must be given again" in state.messages[2].text


async def test_hooks_see_the_secret_and_which_argument_it_is() -> None:
    seen: list[Any] = []
    hook = make_hook("before_tool", lambda c: seen.append((c.call.arguments, c.secret_arguments)))
    model = ScriptedModel([call("sign_in", id="c1", user="ada", password=CANARY), "Done."])
    state = await Agent(model, tools=TOOLS, hooks=[hook]).run("Sign me in")

    assert seen == [({"user": "ada", "password": CANARY}, frozenset({"password"}))]
    assert CANARY not in repr(state)


async def test_a_hooks_question_about_such_a_call_hides_it() -> None:
    hook = make_hook(
        "before_tool",
        lambda c: c.with_result(InputRequired(prompt=f"{c.call}", details=dict(c.call.arguments))),
    )
    model = ScriptedModel([call("sign_in", id="c1", user="ada", password=CANARY), "Done."])
    state = await Agent(model, tools=TOOLS, hooks=[hook]).run("Sign me in")

    assert state.status is AgentStatus.PAUSED
    assert CANARY not in repr(state)


def test_the_mark_is_found_wherever_a_schema_has_it() -> None:
    class Nested(BaseTool):
        name = "nested"

        def __call__(self, plain: str, one: Login, many: list[Login], maybe: SecretStr | None):
            """Take secrets."""

    assert Tools([Nested()]).secret_arguments("nested") == {"one", "many", "maybe"}


async def test_a_reply_that_is_no_decision_is_not_quoted_where_tools_have_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    driver = ReActDriver(ScriptedModel([f'{{"args": "{CANARY}'] * 3))
    events = EventRecorder()
    agent = Agent(driver=driver, tools=TOOLS)
    agent.wiretap(events)
    state = await agent.run("Sign me in")

    assert state.status is AgentStatus.FAILED
    assert CANARY not in everything(state, events, caplog)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("functions.sign_in", {"user": "ada", "password": CANARY}),
        ("sign_in", {"user": "ada", "pasword": CANARY}),
    ],
    ids=["a tool that does not exist", "a misspelt argument"],
)
async def test_a_secret_under_a_wrong_name_is_hidden_as_well(
    name: str, arguments: dict[str, Any]
) -> None:
    model = ScriptedModel([call(name, id="c1", **arguments), "Sorry."])
    state = await Agent(model, tools=TOOLS, max_retries=3).run("Sign me in")

    assert CANARY not in repr(state)
    assert "ada" in repr(state)


@pytest.mark.parametrize("secret", ['a"b\\c-canary', "schlüssel-canary", "half\ud83d-canary"])
async def test_odd_secrets_are_found_in_results_in_every_form(secret: str) -> None:
    @tool
    def tells(password: SecretStr) -> str:
        """Tell."""
        value = password.get_secret_value()
        return f"{value!r} {json.dumps(value)} {value.encode(errors='replace')!r}"

    model = ScriptedModel([call("tells", id="c1", password=secret), "Done."])
    state = await Agent(model, tools=[tells]).run("Tell")

    assert "canary" not in state.messages[2].text
    assert state.status is AgentStatus.COMPLETED


@pytest.mark.parametrize("how", ["raises", "signals"])
async def test_a_hook_that_stops_the_run_with_a_secret_is_quoted_without_it(how: str) -> None:
    def stops(context: HookContext) -> HookContext:
        if how == "raises":
            raise AgentStop(StopSignal(reason=StopReason.STOP_REQUESTED, message=f"no {CANARY}"))
        return context.stop(f"no {CANARY}")

    events = EventRecorder()
    model = ScriptedModel([call("sign_in", id="c1", user="ada", password=CANARY), "Done."])
    agent = Agent(model, tools=TOOLS, hooks=[make_hook("before_tool", stops)])
    agent.wiretap(events)
    state = await agent.run("Sign me in")

    assert "no [secret]" in state.explain()
    assert CANARY not in repr(state) + repr(events.events)


async def test_a_model_that_repeats_a_secret_in_its_text_is_quoted_without_it() -> None:
    said = call("sign_in", id="c1", user="ada", password=CANARY)
    response = ModelResponse(text=f"Signing in with {CANARY}.", tool_calls=(said,))
    events = EventRecorder()
    agent = Agent(ScriptedModel([response, "Done."]), tools=TOOLS)
    agent.wiretap(events)
    state = await agent.run("Sign me in")

    told = [e.text for e in events.events if isinstance(e, InferenceResponseReceived)]
    assert told[0] == state.messages[1].text == "Signing in with [secret]."
    assert CANARY not in repr(state)


def test_definitions_of_older_schemas_are_followed() -> None:
    schema = {
        "properties": {"login": {"$ref": "#/definitions/Login"}},
        "definitions": {"Login": {"properties": {"p": {"format": "password"}}}},
    }

    assert secret_arguments(schema) == {"login"}


@tool
def connect(command: str, options: list[str], password: SecretStr) -> str:
    """Connect."""
    assert CANARY in command
    assert password.get_secret_value() == CANARY
    return f"{command}: done"


async def test_a_secret_that_stands_in_an_open_argument_as_well_is_hidden_there(
    caplog: pytest.LogCaptureFixture,
):
    caplog.set_level(logging.DEBUG)
    events = EventRecorder()
    said = call(
        "connect",
        command=f"psql postgresql://ada:{CANARY}@db",
        options=["-q", f"--pw={CANARY}"],
        password=CANARY,
    )
    agent = Agent(ScriptedModel([said, "Done."]), tools=[connect])
    agent.wiretap(events)
    state = await agent.run("Go")
    assert CANARY not in everything(state, events, caplog)
    kept = state.steps[0].step.tool_executions[0].call.arguments
    assert kept == {
        "command": f"psql postgresql://ada:{HIDDEN}@db",
        "options": ["-q", f"--pw={HIDDEN}"],
        "password": HIDDEN,
    }


@pytest.mark.parametrize(("level", "has_traceback"), [(logging.INFO, False), (logging.DEBUG, True)])
async def test_an_error_of_a_tool_is_one_line_and_its_traceback_is_for_debugging(
    level: int, has_traceback: bool, caplog: pytest.LogCaptureFixture
):
    @tool
    def breaks() -> str:
        """Break."""
        raise ValueError("it broke")

    caplog.set_level(level)
    await Agent(ScriptedModel([call("breaks"), "Done."]), tools=[breaks]).run("Go")
    told = [one for one in caplog.records if one.name == "stepwell.tools"]
    assert [one.levelname for one in told] == ["INFO"]
    assert "it broke" in told[0].getMessage()
    assert bool(told[0].exc_info) is has_traceback
