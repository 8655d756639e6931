"""Token counters, where a history may be cut, and how summaries go with other parts of an agent."""

from typing import Any

import pytest

from stepwell import Agent, AgentState, ConfigurationError, InputRequired, Message, ToolCall
from stepwell.agent.metadata_keys import SUMMARY
from stepwell.capabilities.summarization import UseSummarization
from stepwell.capabilities.summarization.token_tally import best_cut, estimate_tokens
from stepwell.capabilities.summarization.transcript import transcript
from stepwell.continuation import AgentStatus
from stepwell.drivers import ReActDriver, ToolCallingDriver
from stepwell.hooks import HookContext, make_hook
from stepwell.messages import FilePart, ImagePart, ThinkingPart, ToolResult
from stepwell.models import ModelRequest
from stepwell.testing import DeterministicAgentDriver, MockTool, ScriptedModel, call
from tests.answers import answer_call

WORDS = "The user wants the report; ten pages of it are written."


class Counter:
    """Counts each message as ten tokens, and remembers which it was asked about."""

    def __init__(self, tokens: Any = 10) -> None:
        self.tokens = tokens
        self.asked: list[str] = []

    def __call__(self, message: Message) -> Any:
        self.asked.append(message.id)
        return self.tokens


def reader(size: int = 100) -> MockTool:
    return MockTool("read", lambda page=0: f"page {page} ".ljust(size, "."))


def reading(steps: int) -> list[Any]:
    return [*(call("read", page=page, id=f"c{page}") for page in range(steps)), "Done."]


def result(call_id: str, text: str = "x") -> Message:
    return Message.tool(ToolResult(call_id=call_id, tool_name="read", content=text))


def asking(*ids: str) -> Message:
    return Message.assistant("", [ToolCall(id=i, name="read") for i in ids])


# Counting


async def test_b269_an_own_counter_is_honoured_and_asked_only_when_needed() -> None:
    counter, summarizer = Counter(), ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=40, keep_tokens=20, model=summarizer, count_tokens=counter)
    agent = Agent(ScriptedModel(["Hello."]), capabilities=[use])
    assert counter.asked == []

    state = AgentState.empty().with_message(*(Message.user(f"{n}") for n in range(5)))
    done = await agent.run(state)

    assert counter.asked[:5] == [message.id for message in state.messages]
    assert done.metadata[SUMMARY]["until"] == 3


async def test_each_message_is_counted_once_however_long_the_run() -> None:
    counter = Counter()
    use = UseSummarization(
        max_tokens=100, model=ScriptedModel(lambda _: WORDS), count_tokens=counter
    )
    agent = Agent(
        ScriptedModel(reading(60)),
        tools=[reader()],
        capabilities=[use],
        max_steps=100,
        max_tokens=None,
    )
    state = await agent.run("Read")
    conversation = {message.id for message in state.messages}
    counted = [id for id in counter.asked if id in conversation]

    assert len(counted) == len(set(counted)) == len(state.messages) - 1
    assert len(counter.asked) < 2 * len(state.messages)


@pytest.mark.parametrize("tokens", [-1, 1.5, None, "ten", True])
async def test_a_counter_that_gives_no_size_is_named(tokens: Any) -> None:
    use = UseSummarization(count_tokens=Counter(tokens))
    state = await Agent(ScriptedModel(["Hello."]), capabilities=[use]).run("Hi")

    assert state.status is AgentStatus.FAILED
    assert "count_tokens returned" in state.explain()


def test_the_usual_counter_counts_everything_that_is_sent() -> None:
    empty = estimate_tokens(Message.user(""))

    assert estimate_tokens(Message.user("a" * 400)) == empty + 100
    assert estimate_tokens(result("c", "b" * 400)) == empty + 100
    assert estimate_tokens(Message.assistant("", [call("read", text="c" * 400)])) > empty + 100
    odd = ToolCall(id="1", name="r", malformed="d" * 399)
    assert estimate_tokens(Message.assistant("", [odd])) == empty + 100
    assert estimate_tokens(Message.of("assistant", [ThinkingPart("e" * 400)])) == empty + 100
    image = Message.user([ImagePart(data="f" * 1_000_000, media_type="image/png")])
    assert estimate_tokens(image) == empty + 1000


# Cutting


@pytest.mark.parametrize(
    ("messages", "cut"),
    [
        ([Message.user("1")], 0),
        ([Message.user("1"), Message.user("2")], 1),
        ([Message.user("1"), asking("a"), result("a")], 1),
        ([asking("a"), result("a"), Message.user("3")], 2),
        ([asking("a", "b"), result("a"), result("b"), Message.user("4")], 3),
        ([asking("a", "b"), result("a"), Message.user("3"), Message.user("4")], 0),
        ([Message.user("1"), asking("a"), Message.user("3")], 1),
        ([result("z"), result("y"), Message.user("3")], 2),
        ([asking("a"), result("a"), asking("a"), result("a")], 2),
    ],
)
def test_a_cut_falls_only_where_no_call_is_open(messages: list[Message], cut: int) -> None:
    assert best_cut(messages, [10] * len(messages), keep_tokens=0) == cut


def test_a_call_that_waits_for_a_person_stays_with_what_follows() -> None:
    messages = [Message.user("1"), asking("a"), result("a"), Message.user("4")]

    assert best_cut(messages, [10] * 4, keep_tokens=0, pending_calls={"a"}) == 1
    assert best_cut(messages, [10] * 4, keep_tokens=0) == 3


def test_as_much_is_kept_as_there_is_room_for() -> None:
    messages = [Message.user(str(n)) for n in range(6)]

    assert best_cut(messages, [10] * 6, keep_tokens=35) == 3
    assert best_cut(messages, [10] * 6, keep_tokens=35, keep_messages=2) == 4
    assert best_cut(messages, [10, 10, 10, 10, 10, 99], keep_tokens=35) == 5


def test_a_transcript_tells_all_kinds_of_parts_but_thinking() -> None:
    said = [
        Message.system("Be kind."),
        Message.user([ImagePart(url="http://x/y.png"), FilePart(name="a.pdf", data="zz")]),
        Message.of(
            "assistant", [ThinkingPart("secret"), ToolCall(id="1", name="f", malformed="{")]
        ),
        Message.tool(ToolResult(call_id="1", tool_name="f", content="bad", is_error=True)),
    ]

    assert transcript(said, limit=1000).splitlines() == [
        "Instruction: Be kind.",
        "User gave an image (http://x/y.png)",
        "User gave a file (a.pdf)",
        "Assistant called f: {",
        "f failed: bad",
    ]


def test_a_transcript_keeps_its_limit() -> None:
    said = [Message.user(f"{n} " * 3000) for n in range(100)]

    assert len(transcript(said, limit=5000)) <= 5000
    assert transcript(said, limit=5000).startswith("User: 0 0")


# With other parts of an agent


async def test_an_answer_that_came_late_is_counted_anew() -> None:
    ask = MockTool("ask", lambda: InputRequired(prompt="Which?"))
    summarizer = ScriptedModel([WORDS])
    asked = [call("ask", id="q1"), call("read", id="r0")]
    model = ScriptedModel([asked, call("read", id="r1"), "Done."])
    use = UseSummarization(max_tokens=200, keep_tokens=50, model=summarizer)
    agent = Agent(model, tools=[ask, reader(40)], capabilities=[use])
    paused = await agent.run("Go")
    assert paused.status is AgentStatus.PAUSED

    state = await agent.run(answer_call(paused, "q1", "long " * 500))

    assert state.final_response == "Done."
    assert len(summarizer.requests) == 1
    assert "long long" in summarizer.requests[0].messages[0].text
    assert [m.is_user() for m in model.requests[2].messages] == [True, False, False]


async def test_messages_that_were_changed_between_two_runs_are_counted_anew() -> None:
    summarizer = ScriptedModel([WORDS])
    use = UseSummarization(max_tokens=500, keep_tokens=100, model=summarizer)
    agent = Agent(
        ScriptedModel(reading(3)),
        tools=[reader(40)],
        capabilities=[use],
        max_steps=2,
        at_limit="pause",
    )
    paused = await agent.run("Go")
    assert paused.status is AgentStatus.PAUSED
    longer = paused.messages.replace_at(0, Message.user("Go " * 1000))

    state = await agent.run(paused.with_messages(longer).with_budget_granted(steps=5))

    assert state.final_response == "Done."
    assert len(summarizer.requests) == 1


async def test_what_other_hooks_add_to_a_request_is_kept() -> None:
    def remind(context: HookContext) -> HookContext:
        request: ModelRequest = context.request  # type: ignore[assignment]
        messages = (*request.messages, Message.user("(Do not forget.)"))
        return context.with_request(ModelRequest(messages=messages, context=request.context))

    for priority in (0, 1000):
        model = ScriptedModel(["Hello."])
        hook = make_hook("before_inference", remind, priority=priority)
        use = UseSummarization(max_tokens=40, model=ScriptedModel([WORDS]))
        agent = Agent(model, capabilities=[use], hooks=[hook])
        start = AgentState.empty().with_message(*(Message.user("a" * 40) for _ in range(9)))
        await agent.run(start)

        texts = [message.text for message in model.requests[0].messages]
        assert WORDS in texts[0]
        assert texts[-1] == "(Do not forget.)"
        assert len(texts) == 3


async def test_a_typed_output_is_asked_for_again_with_a_summary_in_between() -> None:
    model = ScriptedModel(["no number", "7"])
    use = UseSummarization(max_tokens=80, keep_tokens=40, model=ScriptedModel(lambda _: WORDS))
    agent = Agent(model, output_type=int, capabilities=[use])
    start = AgentState.empty().with_message(*(Message.user("a" * 100) for _ in range(5)))
    state = await agent.run(start.with_user_message("How many?"))

    assert state.output == 7
    assert WORDS in model.requests[1].messages[0].text
    assert "can't be used" in model.requests[1].messages[-1].text


async def test_a_react_driver_is_told_the_summary_as_well() -> None:
    decide = '{"thought": "t", "type": "call_tool", "tool": "read", "args": {"page": 1}}'
    answer = '{"thought": "t", "type": "final_answer", "answer": "Four."}'
    model = ScriptedModel([decide, decide, decide, answer])
    use = UseSummarization(max_tokens=200, keep_tokens=80, model=ScriptedModel(lambda _: WORDS))
    agent = Agent(
        driver=ReActDriver(model), tools=[reader(300)], capabilities=[use], max_tokens=None
    )
    state = await agent.run("Read")

    texts = [message.text for message in model.requests[-1].messages]
    assert state.final_response == "Four."
    assert WORDS in texts[0]
    assert texts[-1].startswith("Observation: page 1")


def test_a_react_driver_needs_a_model_given_for_summaries() -> None:
    driver = ReActDriver(ScriptedModel([]))

    with pytest.raises(ConfigurationError, match=r"UseSummarization\(..., model="):
        Agent(driver=driver, capabilities=[UseSummarization()])


@pytest.mark.parametrize("model", [None, ScriptedModel([])])
def test_a_driver_that_asks_no_model_is_refused(model: ScriptedModel | None) -> None:
    driver = DeterministicAgentDriver.from_responses("One.")

    with pytest.raises(ConfigurationError, match="DeterministicAgentDriver, which makes no model"):
        Agent(driver=driver, capabilities=[UseSummarization(model=model)])


def test_a_driver_whose_model_nobody_sees_needs_one_given_for_summaries() -> None:
    class Wrapping:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def bound_to(self, *args: Any, **kwargs: Any) -> Any:
            return self.inner.bound_to(*args, **kwargs)

        async def use_tools(self, state: AgentState) -> AgentState:
            return await self.inner.use_tools(state)

    model = ScriptedModel([])
    for driver in (Wrapping(ReActDriver(model)), ToolCallingDriver(model)):
        with pytest.raises(ConfigurationError, match=r"UseSummarization\(..., model="):
            Agent(driver=driver, capabilities=[UseSummarization(max_tokens=20)])


async def test_one_capability_serves_runs_that_overlap() -> None:
    import asyncio

    use = UseSummarization(max_tokens=100, model=ScriptedModel(lambda _: WORDS, cost=1.0))
    starts = [
        AgentState.empty().with_message(*(Message.user(f"{n} " * 30) for _ in range(n)))
        for n in (1, 12, 1, 20)
    ]
    agents = [Agent(ScriptedModel([f"{n}."]), capabilities=[use]) for n in range(4)]
    states = await asyncio.gather(*(a.run(s) for a, s in zip(agents, starts, strict=True)))

    assert [state.cost for state in states] == [0.0, 1.0, 0.0, 1.0]
    assert [SUMMARY in state.metadata for state in states] == [False, True, False, True]


def test_the_usual_limit_fits_into_what_a_run_may_use() -> None:
    def limit(**limits: Any) -> int:
        use = UseSummarization()
        plan = Agent(ScriptedModel([]), capabilities=[use], **limits).plan
        return use._limit(plan.max_tokens)

    assert limit(max_tokens=32_768) == 32_768 // 4
    assert limit(max_tokens=None) == limit() == 64_000
    with pytest.raises(ConfigurationError, match="would never take effect"):
        Agent(
            ScriptedModel([]),
            capabilities=[UseSummarization(max_tokens=40_000)],
            max_tokens=32_768,
        )
