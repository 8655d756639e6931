"""The lines a person sees at a terminal."""

import io
import re
from typing import Any

import pytest

from stepwell import Agent, Usage
from stepwell.broadcasting import BroadcastConfig, Envelope, EnvelopeType
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.console import ConsoleBroadcaster
from stepwell.continuation import ContinuationDecision, StopReason
from stepwell.journal.envelope import (
    PAYLOADS,
    ContinuationPayload,
    Payload,
    StatusPayload,
    StepCompletedPayload,
    StepStartedPayload,
    StreamChunkPayload,
    Tokens,
    ToolCompletedPayload,
    ToolStartedPayload,
    Vote,
    Waiting,
)
from stepwell.journal.status import BroadcastStatus
from stepwell.messages import FinishReason
from stepwell.state import ToolOutcome
from stepwell.testing import MockTool, ScriptedModel, call

TYPES = {payload: type for type, payload in PAYLOADS.items()}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Screen:
    """A console and what stands on it."""

    def __init__(self, stream: io.StringIO | None = None, **options: Any) -> None:
        self.stream = stream or io.StringIO()
        self.console = ConsoleBroadcaster(self.stream, **options)

    def show(self, payload: Payload, execution_id: str = "run-1") -> None:
        envelope = Envelope(
            id="1",
            seq=1,
            type=TYPES[type(payload)],
            session_id="s",
            execution_id=execution_id,
            timestamp="2026-01-16T10:05:00.123Z",
            payload=payload,
        )
        self.console.broadcast("agent.s", envelope.to_dict())

    def chunk(self, content: str, execution_id: str = "run-1", **fields: Any) -> None:
        given = {"agent_id": "a", "step_number": 1, "is_complete": False, "chunk_index": 0}
        self.show(StreamChunkPayload(content=content, **{**given, **fields}), execution_id)

    @property
    def text(self) -> str:
        return self.stream.getvalue()


def status(word: str = "completed", previous: str = "processing", **fields: Any) -> StatusPayload:
    return StatusPayload(
        agent_id="a",
        status=BroadcastStatus(word),
        previous_status=BroadcastStatus(previous),
        **{"step_count": 0, **fields},
    )


def tool_ended(**fields: Any) -> ToolCompletedPayload:
    given = {"tool_name": "search", "tool_call_id": "c", "success": True, "error": None}
    given |= {"agent_id": "a", "duration_ms": 250.0, "result_summary": "3 found"}
    given["outcome"] = ToolOutcome.COMPLETED if fields.get("success", True) else ToolOutcome.FAILED
    return ToolCompletedPayload(**{**given, **fields})


STEP_STARTED = StepStartedPayload(
    agent_id="a", step_number=2, message_count=5, available_tools=("search", "add")
)
STEP_COMPLETED = StepCompletedPayload(
    agent_id="a",
    step_number=2,
    has_tool_calls=True,
    errors=1,
    error_messages=("ValueError: no",),
    finish_reason=FinishReason.TOOL_CALLS,
    usage=Tokens.of(Usage(input_tokens=500, output_tokens=150)),
    duration_ms=1250.5,
)
TOOL_STARTED = ToolStartedPayload(
    agent_id="a", step_number=2, tool_name="search", tool_call_id="c", args_summary="query: 'x'"
)
CONTINUATION = ContinuationPayload(
    agent_id="a",
    step_number=2,
    should_continue=False,
    stop_reason=StopReason.STEPS_LIMIT,
    resolved_by="StepsLimit",
    evaluations=(
        Vote(criterion="StepsLimit", decision=ContinuationDecision.FORBID, reason="2 of 2"),
        Vote(criterion="ToolCalls", decision=ContinuationDecision.REQUEST, reason="1 call"),
    ),
)


@pytest.mark.parametrize(
    ("payload", "line"),
    [
        (status("processing", "idle"), "processing (was idle)"),
        (
            status("failed", step_count=1, stop_reason=StopReason.ERROR, error_message="boom"),
            "failed (was processing) after 1 step: error: boom",
        ),
        (
            status("stopped", step_count=3, stop_reason=StopReason.STEPS_LIMIT, reason="3 of 3"),
            "stopped (was processing) after 3 steps: steps_limit: 3 of 3",
        ),
        (
            status(
                "paused",
                waits_for=(
                    Waiting(
                        question_id="q_1",
                        kind="approval",
                        prompt="May I?",
                        call_id="c",
                        tool_name="rm",
                    ),
                ),
            ),
            "paused (was processing); waits for approval: May I?",
        ),
        (STEP_STARTED, "step 2 (5 messages; tools: search, add)"),
        (STEP_COMPLETED, "step 2 done (tool_calls, 650 tokens, 1.3 s) 1 error: ValueError: no"),
        (TOOL_STARTED, "tool search(query: 'x')"),
        (tool_ended(), "tool search ok after 250 ms: 3 found"),
        (tool_ended(result_summary=None), "tool search ok after 250 ms"),
        (tool_ended(success=False, error="no net"), "tool search failed after 250 ms: no net"),
        (
            tool_ended(success=False, outcome=ToolOutcome.TIMED_OUT, error="too slow"),
            "tool search timed out after 250 ms: too slow",
        ),
        (
            CONTINUATION,
            "stops: steps_limit, resolved by StepsLimit; votes: StepsLimit forbid (2 of 2); "
            "ToolCalls request (1 call)",
        ),
    ],
)
def test_each_envelope_is_one_line(payload: Payload, line: str) -> None:
    screen = Screen()
    screen.show(payload)

    assert screen.text == f"10:05:00 {line}\n"


def test_streamed_text_is_written_as_it_comes_on_a_line_of_its_own() -> None:
    screen = Screen()
    screen.chunk("Hel")
    assert screen.text == "10:05:00 Hel"
    screen.chunk("lo\nyou")
    screen.chunk("", is_complete=True)
    screen.show(TOOL_STARTED)

    assert screen.text == ("10:05:00 Hello\n         you\n10:05:00 tool search(query: 'x')\n")


def test_a_response_without_text_leaves_no_empty_line() -> None:
    screen = Screen()
    screen.chunk("", is_complete=True)

    assert screen.text == ""


def test_a_line_that_comes_into_streamed_text_stands_alone() -> None:
    screen = Screen()
    screen.chunk("Hel")
    screen.show(TOOL_STARTED)
    screen.chunk("lo")

    assert screen.text == "10:05:00 Hel\n10:05:00 tool search(query: 'x')\n10:05:00 lo"


def test_the_texts_of_two_executions_do_not_mix() -> None:
    screen = Screen()
    screen.show(status("processing", "idle"), "run-1")
    screen.show(status("processing", "idle"), "run-2")
    screen.chunk("one", "run-1")
    screen.chunk("two", "run-2")
    screen.chunk(" more", "run-2")
    screen.chunk("three", "run-1", is_complete=True)
    screen.chunk("", "run-2", is_complete=True)

    assert screen.text.splitlines()[2:] == [
        "10:05:00 [run-1] one",
        "10:05:00 [run-2] two more",
        "10:05:00 [run-1] three",
    ]


def test_subagents_are_indented_and_labelled_by_their_depth() -> None:
    screen = Screen()
    screen.show(STEP_STARTED, "run-1")
    screen.show(status("processing", "idle", parent_execution_id="run-1"), "child")
    grandchild = {"agent_id": "8f3c", "agent_name": "reader", "parent_execution_id": "child"}
    screen.chunk("a\nb", "grandchild", **grandchild)

    assert screen.text.splitlines()[1:] == [
        "10:05:00   [a] processing (was idle)",
        "10:05:00     [reader] a",
        "             b",
    ]


def test_the_answer_is_shown_once() -> None:
    streamed, silent = Screen(), Screen()
    streamed.chunk("Let me see.", is_complete=True)
    streamed.chunk("Four.\n", step_number=2)
    streamed.chunk("Sure.", step_number=2, chunk_index=1)
    streamed.chunk("", step_number=2, chunk_index=2, is_complete=True)
    for screen in (streamed, silent):
        screen.show(status(last_response="Four.\nSure."))

    assert streamed.text == (
        "10:05:00 Let me see.\n"
        "10:05:00 Four.\n         Sure.\n"
        "10:05:00 completed (was processing)\n"
    )
    assert silent.text == "10:05:00 completed (was processing)\n         Four.\n         Sure.\n"


@pytest.mark.parametrize(
    "chunks",
    [
        [{"content": "Four.", "chunk_index": 3}, {"content": "", "is_complete": True}],
        [{"content": "Let me see.", "is_complete": True}],
        [
            {"content": "Let me see.", "is_complete": True},
            {"content": "Sure.", "chunk_index": 4, "is_complete": True},
        ],
    ],
)
def test_an_answer_that_was_not_streamed_whole_is_shown(chunks: list[dict[str, Any]]) -> None:
    """Chunks are the first to be dropped, and not every model streams its last response."""
    screen = Screen()
    for number, chunk in enumerate(chunks):
        screen.chunk(**{"chunk_index": number, **chunk})
    screen.show(status(last_response="Sure. Four."))

    assert screen.text.endswith(" completed (was processing)\n         Sure. Four.\n")


HOSTILE = "\x1b[2J\x1b]0;title\x07\x9b31m\r\x08\u202e\u2028x\x00"


@pytest.mark.parametrize(
    "payload",
    [
        tool_ended(result_summary=HOSTILE, tool_name=HOSTILE),
        tool_ended(success=False, error=HOSTILE),
        ToolStartedPayload(
            agent_id="a", step_number=1, tool_name="t", tool_call_id="c", args_summary=HOSTILE
        ),
        status(last_response=HOSTILE, reason=HOSTILE, error_message=HOSTILE),
        StreamChunkPayload(
            agent_id="a", step_number=1, content=HOSTILE, is_complete=True, chunk_index=0
        ),
        StepStartedPayload(
            agent_id=HOSTILE,
            step_number=1,
            message_count=1,
            available_tools=(HOSTILE,),
            parent_execution_id="p",
        ),
        ContinuationPayload(
            agent_id="a",
            step_number=1,
            should_continue=True,
            stop_reason=None,
            resolved_by=HOSTILE,
            evaluations=(
                Vote(criterion=HOSTILE, decision=ContinuationDecision.ALLOW, reason=HOSTILE),
            ),
        ),
    ],
)
def test_no_content_can_steer_the_terminal(payload: Payload) -> None:
    screen = Screen()
    screen.show(payload)

    assert "\\x1b[2J" in screen.text
    assert re.findall(r"[^\n\x20-\x7e]", screen.text) == []


@pytest.mark.parametrize("kind", [EnvelopeType.AGENT_STATUS, EnvelopeType.AGENT_STEP_STARTED])
def test_numbers_of_a_foreign_envelope_can_not_either(kind: EnvelopeType) -> None:
    screen = Screen()
    numbers = dict.fromkeys(("step_count", "message_count", "step_number"), HOSTILE)
    screen.console.broadcast("agent.s", {"type": kind, "payload": numbers})
    completed = {"errors": HOSTILE, "usage": {"total": HOSTILE}, "error_messages": [HOSTILE]}
    screen.console.broadcast("agent.s", {"type": "agent.step.completed", "payload": completed})

    assert "\\x1b[2J" in screen.text
    assert re.findall(r"[^\n\x20-\x7e]", screen.text) == []


def test_line_breaks_can_not_forge_a_line() -> None:
    screen = Screen()
    screen.show(tool_ended(result_summary="a\n10:05:00 completed"))

    assert screen.text.count("\n") == 1


def test_colours_are_for_terminals_unless_told_otherwise() -> None:
    coloured = [
        "\x1b[" in screen.text
        for screen in (
            Screen(),
            Screen(Terminal()),
            Screen(Terminal(), color=False),
            Screen(color=True),
        )
        if screen.show(tool_ended()) is None
    ]

    assert coloured == [False, True, False, True]


def test_a_stream_that_can_not_say_a_character_gets_it_spelled() -> None:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding="ascii")
    console = ConsoleBroadcaster(stream)
    for content in ("caf\u00e9", "\udce9"):
        console.broadcast(
            "agent.s", {"type": EnvelopeType.AGENT_STREAM_CHUNK, "payload": {"content": content}}
        )

    assert buffer.getvalue().decode("ascii").strip() == "caf\\xe9\\udce9"


def test_an_unknown_envelope_is_named() -> None:
    screen = Screen()
    screen.console.broadcast("agent.s", {"type": "agent.news", "payload": {}})

    assert screen.text.strip() == "agent.news"


def test_stderr_is_written_to_unless_a_stream_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    ConsoleBroadcaster().broadcast("agent.s", {"type": "agent.news", "payload": {}})
    captured = capsys.readouterr()

    assert (captured.out, captured.err.strip()) == ("", "agent.news")


async def test_a_closed_stream_is_a_failure_of_the_transport_only() -> None:
    screen = Screen()
    screen.stream.close()
    adapter = AgentEventEnvelopeAdapter(screen.console, "s", "run-1")
    agent = Agent(ScriptedModel(["Four."]))
    agent.wiretap(adapter.wiretap())
    state = await agent.run("What is 2 + 2?")
    await adapter.flush()

    assert state.final_response == "Four."
    assert adapter.delivered == 0
    assert adapter.failed > 0


async def test_a_run_reads_from_top_to_bottom() -> None:
    screen = Screen()
    adapter = AgentEventEnvelopeAdapter(screen.console, "s", "run-1", BroadcastConfig.minimal())
    agent = Agent(
        ScriptedModel([call("add", id="c1", a=1), "Three."]), tools=[MockTool.returning("add", 3)]
    )
    agent.wiretap(adapter.wiretap())
    await agent.run("Go")
    await adapter.flush()

    starts = [line[9:].split(" (")[0] for line in screen.text.splitlines()]
    assert starts[:2] == ["processing", "step 1"]
    assert starts[2] == "tool add(a: 1)"
    assert starts[3].startswith("tool add ok after ")
    assert starts[4:7] == ["step 1 done", "step 2", "step 2 done"]
    assert starts[7] == "completed"
    assert starts[8] == "Three."
