"""What the browser tests are served: one agent for the scenes of a conversation, one for every way
to stop, one that says hostile things, and one that runs long.
"""

import asyncio

from stepwell import (
    Agent,
    AgentDefinition,
    AgentRegistry,
    AgentSpec,
    ErrorPolicy,
    UseApprovals,
    UseSubagents,
    UseUserInput,
    tool,
)
from stepwell.agent import AgentDescriptor
from stepwell.continuation import (
    AgentStop,
    ContinuationDecision,
    ContinuationEvaluation,
    StopReason,
)
from stepwell.criteria import ContinuationCriteria
from stepwell.messages import FinishReason
from stepwell.state import AgentState
from stepwell.testing import call
from tests.browser.hostile import CORPUS
from tests.browser.stage import Line, Play, Scene, StagedModel, down

STORY_WORDS = 240
MARKDOWN = """## What I found

The *harbour* has **three** parts:

1. the old quay
2. the new quay
   - with a crane
3. the basin

| part | depth |
|---|---|
| old quay | 4 m |
| basin | 11 m |

```python
def depth(part: str) -> int:
    return {"old quay": 4, "basin": 11}[part]
```

> Mind the [tide tables](https://example.org/tides), and ask `harbour@example.org`.

- [x] looked
- [ ] measured
"""


@tool(effect="pure")
def look_up(place: str) -> str:
    """Read what is known of a place; a long text."""
    return "\n".join(f"{place} line {number}" for number in range(1, 61))


@tool(effect="pure")
def measure(attempt: int) -> str:
    """Measure the depth; the first attempt fails."""
    if attempt == 1:
        raise ValueError("the lead line is tangled")
    return "11 m"


@tool
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@tool
async def wait(seconds: float) -> str:
    """Wait, to be cancelled; longer than the tests of a file take on any machine."""
    await asyncio.sleep(seconds)
    return "waited"


@tool(effect="pure")
def note(text: str) -> str:
    """Note a text; gives it back."""
    return text


@tool
def finish_early(why: str) -> str:
    """End the run from inside a tool."""
    raise AgentStop(why)


def story(words: int = STORY_WORDS) -> str:
    """Words that all differ, so that one that is lost or doubled is seen."""
    return " ".join(
        f"w{number:03d}{'.' if number % 12 == 0 else ''}" for number in range(1, words + 1)
    ).replace(". ", ".\n\n")


def then(*lines: Line | Exception) -> Play:
    """One line after the other; the last one is said for ever."""
    return lambda scene: lines[min(scene.turn, len(lines) - 1)]


def _asked(scene: Scene) -> Line:
    if scene.turn == 0:
        question = call(
            "user_input", question="Which quay?", options=["The old one", "The new one"]
        )
        return Line("I need to know more.", (question,))
    return Line(f"You chose: {scene.last}")


def _removed(scene: Scene) -> Line:
    if scene.turn == 0:
        return Line("I will clean up.", (call("delete_file", path="notes.txt"),))
    return Line(f"The tool said: {scene.last}")


def _removed_both(scene: Scene) -> Line:
    if scene.turn == 0:
        paths = ("notes.txt", "plans.txt")
        return Line("Both can go.", tuple(call("delete_file", path=path) for path in paths))
    return Line("Both are dealt with.")


LOOK = (call("look_up", place="quay"), call("look_up", place="basin"))
SPAWN = call("spawn_subagent", subagent="surveyor", prompt="look at the basin")
SCENES: dict[str, Play] = {
    "tell": then(Line(MARKDOWN, pause=0.03, piece=8)),
    "story": then(Line(story(), pause=0.04, piece=10)),
    "quick": then(Line("Quick answer.")),
    "look": then(Line("Let me look.", LOOK), Line("Both places are known.")),
    "mend": then(
        Line(calls=(call("measure", attempt=1),)),
        Line("It failed, once more.", (call("measure", attempt=2),)),
        Line("It is **11 m** deep."),
    ),
    "ask": _asked,
    "remove": _removed,
    "both": _removed_both,
    "reuse": then(
        Line(calls=(call("delete_file", id="c1", path="harmless.txt"),)),
        Line(calls=(call("delete_file", id="c1", path="/everything"),)),
        Line("All is deleted."),
    ),
    "wait": then(Line("I wait.", (call("wait", seconds=3600),)), Line("Waited.")),
    "delegate": then(Line("Someone else looks.", (SPAWN,)), Line("The surveyor is back.")),
    "helper": then(Line(calls=(LOOK[1],)), Line("The basin is 11 m deep.", pause=0.01)),
    "fail": down,
    "echo": lambda scene: Line(scene.said.removeprefix("echo ")),
}
SURVEYOR = AgentSpec(name="surveyor", description="Surveys.", system_prompt="You help.")


def _stage() -> Agent:
    return Agent(
        StagedModel(SCENES),
        tools=[look_up, measure, delete_file, wait],
        capabilities=[
            UseUserInput(),
            UseApprovals("delete_file"),
            UseSubagents(AgentRegistry([SURVEYOR])),
        ],
        error_policy=ErrorPolicy.retry_tool_errors(3),
    )


class Stage(AgentDefinition):
    """The agent of the conversations, with examples to begin with."""

    def descriptor(self) -> AgentDescriptor:
        """Its name, and what to try."""
        return AgentDescriptor(
            name="stage",
            description="Plays scenes of a conversation.",
            examples=("Tell me about the harbour", "Look at both places"),
        )

    def build_agent(self) -> Agent:
        """Built once."""
        return _stage()


def _guard(state: AgentState) -> ContinuationEvaluation:
    reached = state.step_count >= 1
    return ContinuationEvaluation(
        criterion="TideGuard",
        decision=ContinuationDecision.FORBID if reached else ContinuationDecision.ALLOW,
        reason="the tide is too low" if reached else "the tide is high",
        context={"depth_m": 1.5},
        stop_reason=StopReason.GUARD if reached else None,
        hint="come back at high tide.",
    )


ON_AND_ON = {"tell": then(Line("On and on.", (call("note", text="again"),)))}
STUMBLE = {"tell": then(Line(calls=(call("measure", attempt=1),)))}
AN_HOUR = {"tell": then(Line(calls=(call("wait", seconds=3600),)))}
QUIT = {"tell": then(Line(calls=(call("finish_early", why="nothing left to do"),)))}
CUT = {"tell": then(Line("Cut off in the", finish=FinishReason.LENGTH))}


def _going_on(**limits: object) -> Agent:
    return Agent(StagedModel(ON_AND_ON, cost=0.02), tools=[note], **limits)  # type: ignore[arg-type]


STOPS: dict[str, Agent] = {
    "error": Agent(StagedModel({"tell": down})),
    "user_requested": Agent(StagedModel(AN_HOUR), tools=[wait]),
    "stop_requested": Agent(StagedModel(QUIT), tools=[finish_early]),
    "input_required": Agent(StagedModel({"tell": _asked}), capabilities=[UseUserInput()]),
    "guard": _going_on(criteria=[ContinuationCriteria.when(_guard)]),
    "steps_limit": _going_on(max_steps=3),
    "token_limit": _going_on(max_tokens=300),
    "time_limit": Agent(StagedModel(AN_HOUR), tools=[wait], timeout=0.3),
    "cost_limit": _going_on(max_cost=0.05),
    "retry_limit": Agent(
        StagedModel(STUMBLE), tools=[measure], error_policy=ErrorPolicy.retry_tool_errors(2)
    ),
    "finish_reason": Agent(StagedModel(CUT), stop_on_finish_reasons=["length"]),
    "completed": Agent(StagedModel({"tell": then(Line("Done."))})),
    "budget": _going_on(max_steps=2, at_limit="pause"),
}
"""By the stop reason that they lead to; ``budget`` pauses at its limit of steps."""


def _hostile(scene: Scene) -> Line:
    """``hostile 3 of 6``: that part of the corpus, one entry a turn, as text, call and result."""
    part, parts = (int(word) for word in scene.said.split()[1:4:2])
    mine = CORPUS[part - 1 :: parts]
    if scene.turn >= len(mine):
        return Line("That was all of it.")
    text = mine[scene.turn]
    return Line(text, (call("note", text=text),))


def _long(scene: Scene) -> Line:
    steps = int(scene.said.split()[1])
    if scene.turn + 1 >= steps:
        return Line(f"That were {steps} steps.")
    return Line(calls=(call("note", text=f"step {scene.turn + 1}"),))


def _unlimited(scenes: dict[str, Play]) -> Agent:
    return Agent(StagedModel(scenes), tools=[note], max_steps=5000, max_tokens=None, timeout=None)


agents = {
    "stage": Stage(),
    "hostile": _unlimited({"tell": then(Line("?")), "hostile": _hostile}),
    "long": _unlimited({"tell": then(Line("?")), "long": _long}),
    **{f"stops-{reason}": agent for reason, agent in STOPS.items()},
}
