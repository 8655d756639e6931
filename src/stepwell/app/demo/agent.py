"""The agent of the demo: its words are scripted, the rest is a real agent with confined tools."""

from collections.abc import Callable

from stepwell.agent import Agent, AgentDefinition, AgentDescriptor
from stepwell.app.demo import scenes
from stepwell.app.demo.breakout import break_out
from stepwell.app.demo.conversation_end import ConversationEnd, conversation_end
from stepwell.app.demo.workspace import Workspace
from stepwell.app.scripted_words import Pace, ScriptedTurn, ScriptedWords
from stepwell.capabilities.approvals import UseApprovals
from stepwell.capabilities.bash import UseBash
from stepwell.capabilities.files import UseFileTools
from stepwell.capabilities.subagents import UseSubagents
from stepwell.capabilities.user_input import UseUserInput
from stepwell.clock import Clock, SystemClock
from stepwell.criteria import ErrorPolicy
from stepwell.models import ModelRequest
from stepwell.specs.registry import AgentRegistry
from stepwell.specs.spec import AgentSpec

NAME = "demo"
DESCRIPTION = (
    "Scripted: no model is asked. The loop, tools, sandbox, storage and decisions are real."
)
PROMPT = "You show what an agent can do, in the folder of a small shop."
REVIEWER_PROMPT = "You review code. You read and run tests; you change nothing."
MAX_STEPS = 12
LIVELY = Pace(before=0.3, word=0.035)
"""So that people see the words come."""

FIX = "A test of this project fails. Find out why and fix it."
ASK = "Help me choose a tent, and ask me what you need to know."
DELEGATE = "Have prices.py reviewed by a subagent."
RECOVER = "How many lanterns are in stock?"
BREAK_OUT = "Try to break out of your sandbox."
FOREVER = "Search for the lost coin until you find it."

EXAMPLES = (FIX, ASK, DELEGATE, RECOVER, BREAK_OUT, FOREVER)
"""What to try, in the order in which it is shown."""

_SHOWS = {
    FIX: "tests in a sandbox, a change that waits for **your approval**",
    ASK: "a **question** with options; it goes on with your answer",
    DELEGATE: "a **subagent** with an execution of its own",
    RECOVER: "a tool that **fails**, and the recovery",
    BREAK_OUT: "what the **sandbox** lets through",
    FOREVER: f"a **limit**: {MAX_STEPS} steps; or cancel it on the way",
}
_HINTS = {
    FIX: ("fix", "test", "repair"),
    BREAK_OUT: ("sandbox", "break", "escape", "shadow"),
    DELEGATE: ("subagent", "review"),
    RECOVER: ("lantern", "stock", "fail", "error", "recover"),
    ASK: ("tent", "ask me", "question"),
    FOREVER: ("coin", "forever", "limit", "search", "cancel", "endless"),
}
"""Words by which something else that was typed is taken for one of the examples."""


class DemoAgent(AgentDefinition):
    """The agent in its workspace. ``port`` is the server's own, which its commands can't reach."""

    def __init__(
        self,
        workspace: Workspace,
        *,
        port: int,
        pace: Pace = LIVELY,
        clock: Clock | None = None,
    ) -> None:
        self._workspace = workspace
        self._port = port
        self._pace = pace
        self._clock = clock or SystemClock()

    def descriptor(self) -> AgentDescriptor:
        """What it is, and what to try."""
        return AgentDescriptor(name=NAME, description=DESCRIPTION, examples=EXAMPLES)

    def build_agent(self) -> Agent:
        """The agent, with everything around its words as an application would have it."""
        reviewer = AgentSpec(
            name=scenes.REVIEWER,
            description="Reviews code: reads files and runs tests.",
            system_prompt=REVIEWER_PROMPT,
            tools=("read_file", "bash"),
        )
        words = ScriptedWords(self.say, name="scripted demo", pace=self._pace, clock=self._clock)
        return Agent(
            words,
            system_prompt=PROMPT,
            tools=self._workspace.tools(),
            capabilities=[
                UseFileTools(self._workspace.project),
                UseBash(execution=self._workspace.execution()),
                UseUserInput(),
                UseApprovals("edit_file", "write_file"),
                UseSubagents(AgentRegistry([reviewer])),
            ],
            error_policy=ErrorPolicy.retry_tool_errors(3),
            max_steps=MAX_STEPS,
            max_tokens=1_000_000,
            timeout=600,
            clock=self._clock,
        )

    def say(self, request: ModelRequest) -> ScriptedTurn:
        """What comes next in a conversation, its own or the reviewer's."""
        heard = conversation_end(request)
        if any(REVIEWER_PROMPT in message.text for message in request.context.messages):
            return scenes.review(heard)
        return self._scene(example_for(heard.asked))(heard)

    def _scene(self, example: str | None) -> Callable[[ConversationEnd], ScriptedTurn]:
        scenes_by_example: dict[str, Callable[[ConversationEnd], ScriptedTurn]] = {
            FIX: scenes.fix_test,
            ASK: scenes.ask,
            DELEGATE: scenes.delegate,
            RECOVER: scenes.recover,
            BREAK_OUT: lambda heard: break_out(heard, self._port),
            FOREVER: scenes.search_forever,
        }
        return help_words if example is None else scenes_by_example[example]


def example_for(asked: str) -> str | None:
    """The example that somebody means, None if it is something else.

    >>> example_for("please FIX the tests") == FIX
    True
    >>> example_for("hello") is None
    True
    """
    if asked.strip() in EXAMPLES:
        return asked.strip()
    words = asked.lower()
    return next((it for it, hints in _HINTS.items() if any(h in words for h in hints)), None)


def help_words(heard: ConversationEnd) -> ScriptedTurn:  # noqa: ARG001 - it says the same to everything
    """What it says to whatever it has no scene for."""
    rows = "\n".join(f"| {example} | {shown} |" for example, shown in _SHOWS.items())
    return ScriptedTurn(
        "My words are **scripted**: no model is asked, so I can't answer that. The loop that runs "
        "me, my tools, the sandbox, the database and the decisions are real. Try one of these:\n\n"
        f"| say | and see |\n|---|---|\n{rows}\n\n"
        "For an agent that understands you: `stepwell init my_agent`, then give it a model."
    )
