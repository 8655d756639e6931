"""What an application gives to its runs: opened once per process, made once per execution, closed
in order, and handed to the tools of whoever asked."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stepwell import Agent, ToolContext, tool
from stepwell.app import AgentApp, AllowedContexts
from stepwell.errors import ConfigurationError
from stepwell.journal.status import ExecutionStatus
from stepwell.run_context import Principal, RelatedObject, RunContext
from stepwell.testing import ScriptedModel, call

ADA = Principal(user_id="ada", tenant_id="shop", roles=("customer",))
BOB = Principal(user_id="bob", tenant_id="shop")


class Shop:
    """The orders that one person may see."""

    def __init__(self, owner: str) -> None:
        self.owner = owner


@tool
def my_orders(context: ToolContext[Shop]) -> str:
    """List the orders of whoever asks."""
    who, session = context.principal, context.session
    assert session is not None
    return f"{who.user_id} {who.roles} {context.deps.owner} {session.title}"


def agent() -> Agent:
    def turn(request: Any) -> Any:
        last = request.messages[-1]
        return last.text if last.is_tool() else call("my_orders")

    return Agent(ScriptedModel(turn), tools=[my_orders])


def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'app.db'}"


async def test_each_execution_runs_as_who_sent_it(tmp_path: Path) -> None:
    app = AgentApp(
        agent(), db=sqlite(tmp_path), deps=lambda context: Shop(context.principal.user_id)
    )
    async with app.running():
        ada = await app.ask(ADA, "What did I order?")
        bob = await app.ask(BOB, "And I?")

    assert ada.output == "ada ('customer',) ada What did I order?"
    assert bob.output == "bob () bob And I?"


async def test_deps_are_closed_when_the_execution_ends(tmp_path: Path) -> None:
    events: list[str] = []

    @asynccontextmanager
    async def lifespan(_: AgentApp) -> AsyncGenerator[str]:
        events.append("process opened")
        yield "pool"
        events.append("process closed")

    @asynccontextmanager
    async def deps(context: RunContext[Any]) -> AsyncGenerator[Shop]:
        assert context.resources == "pool"
        events.append("run opened")
        yield Shop("x")
        events.append("run closed")

    app = AgentApp(agent(), db=sqlite(tmp_path), lifespan=lifespan, deps=deps)
    async with app.running():
        await app.ask(ADA, "One.")
        await app.ask(ADA, "Two.")

    run = ["run opened", "run closed"]
    assert events == ["process opened", *run, *run, "process closed"]


async def test_without_deps_tools_get_what_the_lifespan_yielded(tmp_path: Path) -> None:
    @asynccontextmanager
    async def lifespan(_: AgentApp) -> AsyncGenerator[Shop]:
        yield Shop("everybody")

    app = AgentApp(agent(), db=sqlite(tmp_path), lifespan=lifespan)
    async with app.running():
        execution = await app.ask(ADA, "Mine?")

    assert "everybody" in execution.output


async def test_deps_that_can_not_be_made_fail_the_execution_and_close_what_was_opened(
    tmp_path: Path,
) -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def deps(_: RunContext[Any]) -> AsyncGenerator[Shop]:
        try:
            raise OSError("the password is hunter2")
            yield Shop("x")
        finally:
            closed.append("deps")

    app = AgentApp(agent(), db=sqlite(tmp_path), deps=deps)
    async with app.running():
        execution = await app.ask(ADA, "Mine?")

    assert execution.status is ExecutionStatus.FAILED
    assert "hunter2" not in str(execution)
    assert closed == ["deps"]


async def test_a_tool_with_deps_needs_an_application_with_deps() -> None:
    with pytest.raises(ConfigurationError, match="my_orders"):
        AgentApp(agent())


async def test_a_lifespan_that_fails_keeps_the_app_from_starting(tmp_path: Path) -> None:
    @asynccontextmanager
    async def lifespan(_: AgentApp) -> AsyncGenerator[None]:
        raise OSError("no database")
        yield

    app = AgentApp(agent(), db=sqlite(tmp_path), lifespan=lifespan)
    with pytest.raises(OSError, match="no database"):
        await app.start()


@tool
def about(context: ToolContext) -> str:
    """Say what the message is about."""
    related = context.related
    return "nothing" if related is None else f"{related.type} {related.id} {related.data}"


async def test_tools_see_what_the_resolver_knows(tmp_path: Path) -> None:
    from stepwell.sessions.intake.contexts import Context
    from stepwell.sessions.intake.intake import NewMessage

    def order(who: Principal, id: str) -> Any:
        return who.user_id == "ada" and RelatedObject(url=f"/orders/{id}", data={"total": 25})

    def turn(request: Any) -> Any:
        last = request.messages[-1]
        return last.text if last.is_tool() else call("about")

    app = AgentApp(
        Agent(ScriptedModel(turn), tools=[about]),
        db=sqlite(tmp_path),
        contexts=AllowedContexts({"order": order}),
    )
    async with app.running():
        new = NewMessage(content="This?", context=Context(related_type="order", related_id="17"))
        sent = await app.services.intake.send_message(ADA, new)
        assert sent.execution is not None
        execution = await app.services.reader.settled_execution(sent.execution)

    assert execution.output == "order 17 {'total': 25}"
    assert sent.message.context_url == "/orders/17"


async def test_an_agent_may_be_built_for_each_run(tmp_path: Path) -> None:
    built: list[str | None] = []

    def build(context: RunContext[Any]) -> Agent:
        who = context.principal
        built.append(None if who is None else who.user_id)
        words = "I am not yours." if who is None else f"I am {who.user_id}'s."
        return Agent(ScriptedModel([words]))

    app = AgentApp({"own": build}, db=sqlite(tmp_path))
    async with app.running():
        outputs = [(await app.ask(who, "Whose?")).output for who in (ADA, BOB)]

    assert outputs == ["I am ada's.", "I am bob's."]
    assert built == [None, "ada", "bob"]


async def test_a_function_that_builds_no_agent_is_refused_at_the_start() -> None:
    with pytest.raises(ConfigurationError, match="'own'"):
        AgentApp({"own": lambda context: None})  # pyright: ignore[reportArgumentType]
