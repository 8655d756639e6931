"""What the page makes of stored messages, run in Node.js: the same as what was streamed."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import stepwell
from stepwell import Agent, ErrorPolicy, ToolFailure, UseApprovals, UseUserInput
from stepwell.app import AgentApp, NewMessage, Principal
from stepwell.messages import FinishReason
from stepwell.models import ModelResponse
from stepwell.server.views import execution_view, message_view
from stepwell.sessions.occurrence import envelope_of
from stepwell.testing import MockTool, ScriptedModel, call
from tests.answers import answer_question
from tests.servers.node import HERE, printed, why_missing

UI = Path(stepwell.__file__).parent / "ui"
IMPORTS = f"""
import * as lists from "{(UI / "message_list.js").as_uri()}";
import {{ asHistory, answeredBy }} from "{(UI / "page" / "stored.js").as_uri()}";
import {{ rowsOf, steady, withOrigin }} from "{(UI / "page" / "turns.js").as_uri()}";
import {{ newParser }} from "{(UI / "page" / "sse.js").as_uri()}";
let input = "";
for await (const piece of process.stdin) input += piece;
const given = JSON.parse(input);
"""
WHO = Principal(user_id="ada")
Json = dict[str, Any]

pytestmark = pytest.mark.skipif(
    why_missing(HERE / "message_list.mjs") is not None, reason="no Node.js"
)


def played(script: str, given: Any) -> Any:
    """What a script prints, which has ``given`` and the modules of the page."""
    script = IMPORTS + script
    told = json.dumps(given, default=str)
    return json.loads(printed("--input-type=module", "--eval", script, given=told))


LIVE_AND_STORED = """
const all = given.events.reduce((list, one) => {
  const next = lists.received(list, one);
  const isSent = one.type === "message.sent" && one.payload.role === "user";
  return isSent ? lists.said(next, one.payload.content, one.payload.message_id) : next;
}, lists.emptyList());
const stored = lists.fromHistory(asHistory(given.items));
const shown = (list) => lists.messages(list)
  .filter(({ role, folded }) => role !== "status" || !folded)
  .map(({ role, name, summary, content, state, error }) =>
    ({ role, name, summary, content, state, error }));
console.log(JSON.stringify({ live: shown(all), stored: shown(stored) }));
"""


def said_and_called(text: str) -> ModelResponse:
    calls = (call("look_up", id="l1", order=7), call("look_up", id="l2", order=8))
    return ModelResponse(text=text, tool_calls=calls, finish_reason=FinishReason.TOOL_CALLS)


def broken(path: str) -> str:
    """Never works."""
    raise ValueError(f"no file {path}")


def shell(command: str) -> ToolFailure:
    """Fails as expected, with details."""
    return ToolFailure(f"exit code 1 of {command}", details={"exit_code": 1, "ending": "exited"})


def an_agent(turns: Sequence[Any], **limits: Any) -> Agent:
    tools = [MockTool.returning("look_up", {"status": "shipped"}), broken, shell]
    delete = MockTool.returning("delete", "gone")
    return Agent(
        ScriptedModel(list(turns)),
        tools=[*tools, delete],
        capabilities=[UseUserInput(), UseApprovals("delete")],
        error_policy=ErrorPolicy.retry_tool_errors(3),
        **limits,
    )


async def session_of(
    folder: Path, agent: Agent, *, answers: Mapping[str, Any] | None = None
) -> Json:
    """The events and the stored messages of a session with one message."""
    app = AgentApp({"helper": agent}, db=f"sqlite:///{folder / 'session.db'}")
    events: list[Json] = []
    async with app.running():
        services = app.services
        sent = await services.intake.send_message(WHO, NewMessage(content="Go."))
        async with await services.feeds.subscribe(sent.session.id, after=0) as feed:
            async for event in until_the_end(feed):
                events.append(envelope_of(event))
                if event.payload.get("status") == "paused":
                    for call_id, answer in (answers or {}).items():
                        await answer_question(services, sent.execution.id, call_id, answer)
        rows = await services.store.read(lambda tx: tx.messages(sent.session.id, limit=200))
        execution = await services.store.read(lambda tx: tx.execution(sent.execution.id))
    assert execution is not None
    items = [message_view(row) for row in rows]
    return {"events": events, "items": items, "execution": execution_view(execution)}


async def until_the_end(feed: Any) -> AsyncIterator[Any]:
    async for item in feed:
        yield item.event
        is_status = item.event.type == "agent.status"
        ends = ("completed", "failed", "stopped", "cancelled")
        if is_status and item.event.payload["status"] in ends:
            return


@pytest.mark.parametrize(
    ("turns", "answers"),
    [
        ([said_and_called("Let me look."), "It was **shipped**."], {}),
        ([call("broken", path="/a"), call("look_up", order=8), "Found."], {}),
        ([call("shell", command="make"), "It failed."], {}),
        (
            [call("user_input", id="q1", question="Which?", options=["a"]), "Done."],
            {"q1": "a"},
        ),
        ([call("delete", id="d1", path="notes.txt"), "Left."], {"d1": False}),
        ([call("delete", id="d1", path="notes.txt"), "Gone."], {"d1": True}),
        ([call("look_up", id="l1", order=7), call("broken", id="l1", path="/a"), "Found."], {}),
        (
            [call("look_up", id="d1", order=7), call("delete", id="d1", path="notes.txt"), "Left."],
            {"d1": False},
        ),
    ],
)
async def test_what_is_stored_is_shown_as_it_was_streamed(
    tmp_path: Path, turns: Sequence[Any], answers: Mapping[str, Any]
) -> None:
    session = await session_of(tmp_path, an_agent(turns), answers=answers)

    shown = played(LIVE_AND_STORED, session)

    assert len(shown["live"]) >= 3
    assert shown["stored"] == shown["live"]


async def test_an_end_that_was_no_completion_stays_to_be_seen(tmp_path: Path) -> None:
    agent = an_agent([call("look_up", order=n) for n in range(9)], max_steps=2)
    session = await session_of(tmp_path, agent)

    stored = played(LIVE_AND_STORED, session)["stored"]

    assert [one["role"] for one in stored] == ["user", "tool", "tool", "status"]
    assert "the step limit was reached" in stored[-1]["content"]
    assert stored[-1]["error"] is False


MID_RUN = """
const history = asHistory(given.items, [given.execution]);
const begun = lists.fromHistory(history, 0);
const known = new Set(history.map(({ id }) => id));
const opened = given.events.reduce((list, one) => {
  const next = lists.received(list, one);
  const { role, content, message_id: id } = one.payload;
  const isNew = one.type === "message.sent" && role === "user" && !known.has(id);
  return isNew ? lists.said(next, content, id) : next;
}, begun);
const texts = (list) => lists.messages(list).map(({ role, content }) => [role, content]);
const settled = lists.reconciled(opened, asHistory(given.items), 0, [given.execution.id]);
const shown = { begun: texts(begun), opened: texts(opened), settled: texts(settled) };
shown.settled = shown.settled.filter(([role]) => role !== "status");
console.log(JSON.stringify({ ...shown, needs: lists.needsHistory(settled) }));
"""


async def test_an_execution_under_way_is_told_live_and_nothing_twice(tmp_path: Path) -> None:
    session = await session_of(tmp_path, an_agent([said_and_called("First."), "Answer."]))
    later = {**session["items"][0], "id": "m9", "created_at": "2999", "content": "And this?"}
    session["items"].append(later)

    shown = played(MID_RUN, session)

    assert shown["begun"] == [["user", "Go."]]
    told = [text for role, text in shown["opened"] if role != "tool"]
    assert told == ["Go.", "First.", "Answer."]
    assert [text for role, text in shown["settled"] if role != "tool"] == [*told, "And this?"]
    assert [role for role, _ in shown["settled"]].count("tool") == 2
    assert shown["needs"] is False


def told(number: int, role: str, execution: str | None, **metadata: Any) -> Json:
    return {
        "id": f"m{number}",
        "role": role,
        "content": f"{role} {number}",
        "agent_execution_id": execution,
        "created_at": f"2026-01-01T00:00:{number:02}Z",
        "metadata": metadata,
    }


ROWS = """
const list = lists.fromHistory(asHistory(given.items));
const users = answeredBy(given.items);
const rows = rowsOf(lists.messages(list), users, (id) => given.open.includes(id));
const short = ({ kind, message, execution, details, hasStatus }) =>
  kind === "end"
    ? `end ${execution} ${details.length}${hasStatus ? " status" : ""}`
    : message.content || message.name;
const keys = new Set(rows.map(({ key }) => key));
console.log(JSON.stringify({ rows: rows.map(short), keys: keys.size }));
"""


def test_messages_stand_with_the_execution_that_they_belong_to() -> None:
    items = [
        told(1, "user", "e1"),
        told(2, "info", "e1", event_type="execution.started"),
        told(3, "user", "e2"),
        told(4, "info", "e1", event_type="tool.called", step_number=1, call_id="c", tool="look"),
        told(5, "assistant", "e1", event_type="execution.completed", status="completed"),
        told(6, "info", "e2", event_type="tool.called", step_number=1, call_id="c", tool="look"),
        told(7, "notification", "e2", event_type="execution.failed", status="failed"),
        told(8, "user", None),
        told(9, "user", "e3"),
        told(10, "assistant", "e3", event_type="execution.completed"),
        told(11, "assistant", None),
    ]

    shown = played(ROWS, {"items": items, "open": ["e3"]})

    assert shown["rows"] == [
        *("user 1", "look", "assistant 5", "end e1 1"),
        *("user 3", "look", "notification 7", "end e2 0 status"),
        *("user 8", "user 9", "assistant 10", "assistant 11"),
    ]
    assert shown["keys"] == 12


ORIGIN = """
const rowsWith = (items, isWhole) => {
  const messages = lists.messages(lists.fromHistory(asHistory(items)));
  const rows = withOrigin(rowsOf(messages, answeredBy(items), () => true), given.origin, isWhole);
  return rows.map(({ kind, message }) => message?.content ?? kind);
};
const [copied, own] = [given.items.slice(0, 2), given.items.slice(2)];
console.log(JSON.stringify([
  rowsWith(given.items, true), rowsWith(copied, true), rowsWith(own, true), rowsWith(own, false),
]));
"""


def test_a_fork_says_where_it_begins_behind_what_was_copied() -> None:
    items = [
        *(told(1, "user", None), told(2, "assistant", None)),
        *(told(3, "user", "e1"), told(4, "assistant", "e1")),
    ]
    origin = {"execution_id": "e0", "step_number": 12}

    whole, copied, own, cut = played(ORIGIN, {"items": items, "origin": origin})

    assert whole == ["user 1", "assistant 2", "origin", "user 3", "assistant 4"]
    assert copied == ["user 1", "assistant 2", "origin"]
    assert own == ["origin", "user 3", "assistant 4"]
    # What comes before is not loaded: it may stand there.
    assert cut == ["user 3", "assistant 4"]
    nothing = played(ORIGIN, {"items": items, "origin": None})
    assert "origin" not in [each for rows in nothing for each in rows]


CUT = """
console.log(JSON.stringify(asHistory(given).map(({ role, content }) => [role, content])));
"""


@pytest.mark.parametrize(
    ("metadata", "note"),
    [
        ({}, None),
        ({"incomplete": True}, "The answer is incomplete: the run ended while the model wrote it."),
        (
            {"status": "completed", "stop_reason": "finish_reason"},
            "The answer may be incomplete: the model's finish reason ended the run (reason "
            "finish_reason, status completed).",
        ),
    ],
)
def test_an_answer_that_was_cut_off_has_a_note_behind_it(metadata: Json, note: str | None) -> None:
    items = [told(1, "user", "e1"), {**told(2, "assistant", "e1"), "metadata": metadata}]

    shown = played(CUT, items)

    expected = [["user", "user 1"], ["assistant", "assistant 2"]]
    assert shown == [*expected, *([] if note is None else [["notification", note]])]


STEADY = """
const block = (state, children = [], duration_ms = null) =>
  ({ id: "c", role: "tool", execution: "e", state, content: "", children, duration_ms });
const text = (id, content) => ({ id, role: "assistant", content, incomplete: false });
const child = text("x:1", "of the subagent");
const before = [text("e:1", "same"), text("e:2", "grows"), block("done", [child], 1.23456)];
const fresh = [text("e:1:answer", "same"), text("e:2", "grows on"), block("done", [], 1.235)];
const after = steady(before, fresh);
console.log(JSON.stringify(after.map((one, place) => one === before[place])));
"""


def test_what_looks_the_same_stays_the_same_object() -> None:
    assert played(STEADY, None) == [True, False, True]


PIECES = """
const whole = [
  `retry: 1000\\n\\n: still here\\n\\nid: 7\\nevent: a.b\\ndata: {"x":\\ndata: "ä"}\\r\\n\\n`,
  `id: 8\\ndata: last\\n\\nid: 9\\ndata: cut off`,
].join("");
const heard = [];
for (let size = 1; size < whole.length; size++) {
  const found = [];
  const take = newParser((event) => found.push(event));
  for (let at = 0; at < whole.length; at += size) take(whole.slice(at, at + size));
  heard.push(JSON.stringify(found));
}
console.log(JSON.stringify([...new Set(heard)].map((one) => JSON.parse(one))));
"""


def test_events_are_read_wherever_the_line_cuts_them() -> None:
    assert played(PIECES, None) == [
        [
            {"id": "7", "event": "a.b", "data": '{"x":\n"ä"}'},
            {"id": "8", "event": "message", "data": "last"},
        ]
    ]


WORDS = """
const { ago, shownArguments, span } = await import(given.words);
const now = Date.parse("2026-01-10T00:00:00Z");
console.log(JSON.stringify({
  spans: [null, 0.2, 12.4, 3400, 126_000].map(span),
  ago: ["2026-01-09T23:59:50Z", "2026-01-09T22:00:00Z", "2026-01-01T00:00:00Z", "never"]
    .map((one) => ago(one, now)),
  plain: shownArguments({ path: "a", deep: [1] }),
  lines: shownArguments({ path: "a", text: 'one\\n"path": "b"' }),
}));
"""


def test_times_and_arguments_are_told_in_words() -> None:
    shown = played(WORDS, {"words": (UI / "page" / "words.js").as_uri()})

    assert shown["spans"] == ["", "<1 ms", "12 ms", "3.4 s", "2.1 min"]
    just_now, hours, weeks, never = shown["ago"]
    assert (just_now, never) == ("now", "")
    assert (hours[0], weeks[0]) == ("2", "1")
    assert json.loads(shown["plain"]) == {"path": "a", "deep": [1]}
    assert shown["lines"] == '"path": "a"\n"text":\n│ one\n│ "path": "b"'


def test_a_call_that_failed_is_shown_with_its_error_not_with_what_it_returned() -> None:
    ended = told(1, "notification", "e1", event_type="tool.completed", step_number=1, call_id="c")
    ended["content"] = "bash failed: exit code 1"
    ended["metadata"] |= {"tool": "bash", "outcome": "failed", "result_summary": '{"exit_code":1}'}
    script = "console.log(JSON.stringify(lists.messages(lists.fromHistory(asHistory(given)))))"

    [block] = played(script, [ended])

    assert (block["content"], block["state"]) == ("Error: exit code 1", "failed")
