"""The executor and its ledger, and hooks that answer in the model's place."""

from collections.abc import Sequence

from msgspec.structs import replace
from pydantic import SecretStr

from stepwell.agent import Agent
from stepwell.clock import SystemClock
from stepwell.continuation import Cancellation
from stepwell.hooks import HookContext, HookTrigger, make_hook
from stepwell.models import ModelResponse
from stepwell.state import ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call
from stepwell.tools import LedgerEntry, tool
from stepwell.tools.results import Finished, blank, completed_result, refused_result


class Book:
    """Notes all calls; knows what some came to."""

    def __init__(self, known: dict[str, Finished] | None = None) -> None:
        self.known = known or {}
        self.notes: list[str] = []
        self.ended: list[Finished] = []

    def recall(self, entry: LedgerEntry, /) -> Finished | None:
        return self.known.get(entry.call.id)

    async def begin(self, entries: Sequence[LedgerEntry], /) -> None:
        calls = [entry.call for entry in entries]
        self.notes.append("begin " + " ".join(f"{it.id} {dict(it.arguments)}" for it in calls))

    def end(self, entry: LedgerEntry, finished: Finished, /) -> None:
        self.notes.append(f"end {entry.call.id} {finished.execution.text}")
        self.ended.append(finished)


def with_book(agent: Agent, book: Book) -> Agent:
    return Agent.from_plan(replace(agent.plan, ledger=book))


async def test_each_call_is_noted_before_it_runs_and_after() -> None:
    book, tool_ = Book(), MockTool.returning("look", "seen")
    model = ScriptedModel([call("look", id="c1", path="a"), "Done."])
    state = await with_book(Agent(model, tools=[tool_]), book).run("Look")
    assert state.final_response == "Done."
    assert book.notes == ["begin c1 {'path': 'a'}", "end c1 seen"]


async def test_the_calls_of_a_response_are_noted_together_before_any_of_them_runs() -> None:
    book, look = Book(), MockTool.returning("look", "seen")
    model = ScriptedModel([[call("look", id="c1"), call("look", id="c2")], "Done."])
    await with_book(Agent(model, tools=[look]), book).run("Look")
    assert book.notes[0] == "begin c1 {} c2 {}"
    assert sorted(book.notes[1:]) == ["end c1 seen", "end c2 seen"]


async def test_what_the_ledger_knows_is_not_run_again() -> None:
    at = SystemClock().now()
    look = MockTool.returning("look", "seen")
    model = ScriptedModel([call("look", id="c1"), "Done."])
    agent = Agent(model, tools=[look])
    known = refused_result(
        blank(call("look", id="c1"), at),
        ToolOutcome.UNKNOWN,
        "nobody knows",
    )
    state = await with_book(agent, Book({"c1": known})).run("Look")
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.UNKNOWN
    assert state.messages[2].text == "Error: nobody knows"
    assert look.calls == []


async def test_a_known_call_needs_neither_its_tool_nor_valid_arguments() -> None:
    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    calls = [call("look", id="c1"), call("gone", id="c2")]
    known = {
        it.id: completed_result(blank(it, SystemClock().now()), f"seen {it.id}") for it in calls
    }
    agent = with_book(Agent(ScriptedModel([calls, "Done."]), tools=[look]), Book(known))
    state = await agent.run("Look")
    ran = state.steps[0].step.tool_executions
    assert [(it.outcome, it.text) for it in ran] == [
        (ToolOutcome.COMPLETED, "seen c1"),
        (ToolOutcome.COMPLETED, "seen c2"),
    ]
    assert not state.had_errors


async def test_a_run_that_is_cancelled_while_the_ledger_writes_does_not_run_the_tool() -> None:
    cancellation, look = Cancellation(), MockTool.returning("look", "seen")

    class Slow(Book):
        async def begin(self, entries: Sequence[LedgerEntry], /) -> None:
            cancellation.request("enough")
            await super().begin(entries)

    book = Slow()
    agent = with_book(Agent(ScriptedModel([call("look", id="c1"), "Done."]), tools=[look]), book)
    state = await agent.run("Look", cancellation=cancellation)
    assert look.calls == []
    assert state.steps[0].step.tool_executions[0].outcome is ToolOutcome.NOT_RUN
    assert book.ended[0].execution.outcome is ToolOutcome.NOT_RUN


async def test_secret_arguments_do_not_reach_the_ledger() -> None:
    @tool
    def login(password: SecretStr) -> str:
        """Log in."""
        return f"welcome, {password.get_secret_value()}"

    book = Book()
    model = ScriptedModel([call("login", id="c1", password="hunter2-hunter2"), "Done."])
    await with_book(Agent(model, tools=[login]), book).run("Log in")
    assert "hunter2" not in str(book.notes)
    assert "hunter2" not in str(book.ended[0].execution)


async def test_a_hook_may_answer_in_the_models_place() -> None:
    def answer(context: HookContext) -> HookContext:
        return context.with_response(ModelResponse(text="From the hook."))

    model = ScriptedModel(["From the model."])
    agent = Agent(model, hooks=[make_hook(HookTrigger.BEFORE_INFERENCE, answer)])
    parts = [part async for part in agent.stream("Hello")]
    assert parts[-1].state.final_response == "From the hook."
    assert "From the hook." in [getattr(part, "text", None) for part in parts]
    assert model.requests == []
