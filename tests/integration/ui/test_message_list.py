"""The message list: what a chat shows of envelopes, of stored messages, and of both."""

from stepwell import Agent
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.serialization.slim import SlimAgentStateSerializer
from stepwell.testing import MockTool, ScriptedModel, call
from tests.integration.ui.envelopes import chunk, completed, envelope, listed, shown, started, state
from tests.message_list import (
    empty_list,
    from_history,
    messages,
    missing,
    needs_history,
    newest,
    received,
    reconciled,
    said,
    status,
)


def test_text_grows_chunk_by_chunk_and_is_incomplete_until_the_last_one_came() -> None:
    list = listed([chunk(1, 0, "Four"), chunk(2, 1, " then.")])
    assert messages(list)[0] == {
        "id": "e1:1",
        "role": "assistant",
        "content": "Four then.",
        "incomplete": True,
    }

    assert messages(received(list, chunk(3, 2, "", last=True)))[0]["incomplete"] is False


def test_text_after_a_gap_is_held_back_until_the_gap_is_filled() -> None:
    list = listed([chunk(1, 0, "One "), chunk(3, 2, "three", last=True)])
    assert (messages(list)[0]["content"], messages(list)[0]["incomplete"]) == ("One ", True)
    assert missing(list) == [(2, 2)]

    list = received(list, chunk(2, 1, "two "))
    assert (messages(list)[0]["content"], messages(list)[0]["incomplete"]) == (
        "One two three",
        False,
    )
    assert missing(list) == []


def test_a_response_that_begins_again_replaces_what_broke_off() -> None:
    list = listed([chunk(1, 0, "Broken"), chunk(2, 0, "Whole"), chunk(3, 1, "", last=True)])

    assert shown(list) == ["assistant: Whole", "status: Working: step 1"]


def test_a_tool_call_is_one_block_that_runs_and_then_has_its_result() -> None:
    list = listed([started(1, "c1")])
    block = messages(list)[0]
    assert (block["state"], block["name"], block["summary"]) == ("running", "look", "at: 'home'")

    block = messages(received(list, completed(2, "c1")))[0]
    assert (block["state"], block["content"], block["error"]) == ("done", "found", False)
    assert block["folded"] is True

    block = messages(received(list, completed(2, "c1", None, "Error: gone")))[0]
    assert (block["state"], block["content"], block["error"]) == ("failed", "Error: gone", True)


def test_a_call_whose_end_never_came_is_unknown_once_its_step_or_the_run_is_over() -> None:
    list = listed([started(1, "c1")])
    ends = [
        envelope(3, "step.completed", step_number=1),
        envelope(3, "step.started", step_number=2),
        state(3, "completed"),
        state(3, "paused"),
        envelope(3, "step.started", "e2", step_number=1),
    ]

    assert [messages(received(list, end))[0]["state"] for end in ends] == ["unknown"] * len(ends)
    late = received(received(list, ends[0]), completed(2, "c1"))
    assert messages(late)[0]["state"] == "done"


def test_a_result_whose_start_never_came_has_a_block_as_well() -> None:
    list = listed([chunk(1, 0, "Look:"), completed(3, "c1"), chunk(5, 0, "Done.", step=2)])

    assert shown(list)[:3] == ["assistant: Look:", "tool: lookfound", "assistant: Done."]


def test_a_call_that_runs_again_after_a_pause_keeps_its_block() -> None:
    paused = [started(1, "c1"), completed(2, "c1", "waits"), state(3, "paused")]
    list = listed([*paused, started(4, "c1", step=2)])
    assert [one["state"] for one in messages(list) if one["role"] == "tool"] == ["running"]

    list = received(list, completed(5, "c1", "approved"))
    assert shown(list) == ["tool: lookapproved", "status: Working: step 2"]


def test_a_call_id_that_is_used_again_in_a_later_step_is_another_call() -> None:
    first = [started(1, "c1", args_summary="a: 1"), completed(2, "c1", "one")]
    begun = envelope(3, "step.started", step_number=2)
    second = [started(4, "c1", step=2, args_summary="a: 2"), completed(5, "c1", "two")]
    told = [one for one in messages(listed([*first, begun, *second])) if one["role"] == "tool"]

    assert [(one["step"], one["summary"], one["content"]) for one in told] == [
        (1, "a: 1", "one"),
        (2, "a: 2", "two"),
    ]


def test_what_a_subagent_does_is_inside_the_block_of_its_call() -> None:
    child = {"parent_execution_id": "e1", "parent_tool_call_id": "c1"}
    list = listed(
        [
            started(1, "c1"),
            envelope(2, "step.started", "e2", step_number=1, **child),
            envelope(
                3, "stream.chunk", "e2", step_number=1, chunk_index=0, content="I help.", **child
            ),
            state(4, "processing"),
        ]
    )
    (block, working) = messages(list)
    assert [one["content"] for one in block["children"]] == ["I help.", "Working: step 1"]
    assert working["content"] == "Working: step 1"

    block = messages(received(list, completed(5, "c1")))[0]
    assert [one["content"] for one in block["children"]] == ["I help."]
    assert not needs_history(received(list, state(6, "failed", "e2", **child)))


def test_a_subagent_is_shown_though_the_start_of_its_call_was_lost() -> None:
    child = {"parent_execution_id": "e1", "parent_tool_call_id": "c1"}
    list = listed([state(1, "processing"), state(3, "processing", "e2", **child)])
    assert [one["content"] for one in messages(list)[0]["children"]] == ["Working"]

    assert messages(received(list, completed(4, "c1")))[0]["name"] == "look"


def test_subagents_that_name_each_other_as_parent_harm_nothing() -> None:
    list = listed(
        [
            state(1, "processing", "e1", parent_execution_id="e2"),
            state(2, "processing", "e2", parent_execution_id="e1"),
            state(3, "processing", "e3", parent_execution_id="e3"),
        ]
    )

    assert messages(list) == []


def test_a_status_is_shown_until_another_takes_its_place() -> None:
    asked = [
        {"kind": "question", "prompt": "Which airport?"},
        {"kind": "approval", "prompt": "Run rm?"},
    ]
    waits = "Waiting for an answer: Which airport?\nWaiting for approval: Run rm?"
    told = [
        (state(1, "processing"), "Working"),
        (envelope(2, "step.started", step_number=3), "Working: step 3"),
        (state(3, "paused", waits_for=asked), waits),
        (state(4, "processing"), "Working: step 3"),
        (state(5, "stopped", reason="Step limit reached"), "Stopped: Step limit reached"),
    ]
    list = empty_list()
    for one, words in told:
        list = received(list, one)
        assert shown(list) == [f"status: {words}"]

    assert shown(received(list, state(6, "completed"))) == []


def test_a_failure_is_marked_until_the_stored_messages_take_its_place() -> None:
    list = listed([state(1, "failed", error_message="the provider is down", reason="error")])
    assert messages(list) == [
        {
            "id": "e1:status",
            "role": "status",
            "content": "Failed: the provider is down",
            "error": True,
            "folded": False,
        }
    ]
    assert needs_history(list)

    list = reconciled(list, [{"id": "m", "role": "user", "content": "Hi"}])
    assert shown(list) == ["user: Hi"]
    assert not needs_history(list)
    assert status(list) == "failed"


def test_the_answer_in_the_last_status_stands_in_for_chunks_that_never_came() -> None:
    end = state(9, "completed", last_response="Four then.")

    assert shown(listed([end])) == ["assistant: Four then."]
    assert shown(listed([chunk(1, 0, "Four"), end])) == ["assistant: Four then."]
    assert messages(listed([chunk(1, 0, "Four"), end]))[0]["incomplete"] is False


def test_what_the_user_typed_stands_between_the_runs() -> None:
    list = said(empty_list(), "First?", "u1")
    list = listed([chunk(1, 0, "One.", last=True), state(2, "completed")], list)
    list = said(list, "Second?", "u2")
    list = received(list, envelope(3, "step.started", "e2", step_number=1))

    assert shown(list) == [
        "user: First?",
        "assistant: One.",
        "user: Second?",
        "status: Working: step 1",
    ]
    assert status(list) == "processing"


def test_what_came_and_was_typed_after_the_fetch_began_stays() -> None:
    list = listed([chunk(1, 0, "One.", last=True), state(2, "completed")])
    point = newest(list)
    list = received(said(list, "Second?", "u2"), envelope(3, "step.started", "e2", step_number=1))
    stored = [{"id": "m1", "role": "user", "content": "First?"}]

    list = reconciled(list, stored, point)
    assert shown(list) == ["user: First?", "user: Second?", "status: Working: step 1"]
    assert list.size == 1

    stored.append({"id": "u2", "role": "user", "content": "Second?"})
    assert shown(reconciled(list, stored, point))[1:] == [
        "user: Second?",
        "status: Working: step 1",
    ]


def test_a_page_opened_in_the_middle_shows_no_step_twice() -> None:
    stored = [
        {"id": "e1:1:0", "role": "assistant", "content": "Look:"},
        {"id": "e1:1:1", "role": "tool", "content": "found", "metadata": {"tool_call_id": "c1"}},
    ]
    replayed = [
        chunk(4, 0, "Look:"),
        started(5, "c1"),
        completed(6, "c1"),
        chunk(7, 0, "So", step=2),
    ]
    list = listed(replayed, from_history(stored))

    assert shown(list) == [
        "assistant: Look:",
        "tool: found",
        "assistant: So",
        "status: Working: step 2",
    ]
    assert missing(list) == []


def test_gaps_are_told_as_ranges_and_ask_for_history_where_nothing_can_be_sent_again() -> None:
    list = listed([state(2, "processing"), state(5, "processing"), state(6, "processing")])

    assert missing(list) == [(1, 1), (3, 4)]
    assert not needs_history(list)
    assert needs_history(list, can_replay=False)
    assert not needs_history(reconciled(list, []), can_replay=False)


def test_what_cannot_be_read_is_counted_and_an_unknown_type_is_no_gap() -> None:
    odd = [None, 3, [], {}, {"id": "x"}, {"id": "x", "seq": -1}, {"id": "x", "seq": True}]
    list = listed(odd)
    assert (list.ignored, messages(list), missing(list)) == (len(odd), [], [])

    list = listed([envelope(1, "new.kind"), envelope(2, "status", status="odd"), chunk(3, 0, "Hi")])
    assert (list.ignored, missing(list)) == (2, [])
    assert shown(list)[0] == "assistant: Hi"


def test_a_list_that_was_handed_out_never_changes() -> None:
    first = listed([chunk(1, 0, "One")])
    second = received(first, chunk(2, 1, " two"))
    assert shown(second)[0] == "assistant: One two"
    other = received(first, chunk(3, 1, " three"))

    assert shown(first)[0] == "assistant: One"
    assert shown(other)[0] == "assistant: One three"
    assert shown(second)[0] == "assistant: One two"
    assert received(second, chunk(2, 1, " two")).seen == second.seen


def test_the_same_envelope_given_twice_to_one_list_is_taken_each_time() -> None:
    list = listed([chunk(1, 0, "One")])
    one = chunk(2, 1, " two")
    first, second = received(list, one), received(list, one)

    assert shown(second)[0] == shown(first)[0] == "assistant: One two"
    assert shown(list)[0] == "assistant: One"


def test_a_seq_from_nowhere_makes_no_list_deaf() -> None:
    broken = state(2**53 - 1, "processing")
    for before in (empty_list(), listed([state(3, "processing")], from_history([]))):
        list = received(before, broken)
        assert list.ignored == 1
        assert shown(received(reconciled(list, []), state(9, "paused"))) == ["status: Paused"]


def test_stored_calls_and_results_become_the_blocks_that_were_shown_live() -> None:
    model = ScriptedModel([call("add", id="c1", a=1, note="a text of more than thirty"), "Three."])
    agent, screen = Agent(model, tools=[MockTool.returning("add", 3)]), RecordingBroadcaster()
    agent.wiretap(AgentEventEnvelopeAdapter(screen, "s", "e1").wiretap())
    final = agent.run_sync("Add.")
    stored = SlimAgentStateSerializer().serialize(final)["messages"]

    live = messages(listed(screen.envelopes, said(empty_list(), "Add.", "u1")))
    fresh = messages(from_history(stored))

    assert [one["role"] for one in live] == ["user", "tool", "assistant"]
    own = {"execution", "duration_ms"}  # the adapter was given another id; slim has no durations
    assert live[1].keys() == fresh[1].keys()
    assert [live[1][name] for name in live[1].keys() - own] == [
        fresh[1][name] for name in live[1].keys() - own
    ]
    assert [one["content"] for one in live] == [one["content"] for one in fresh]


def test_messages_of_the_app_are_foldable_statuses_and_system_messages_are_hidden() -> None:
    stored = [
        {"id": "1", "role": "system", "content": "Be brief."},
        {"id": "2", "role": "info", "content": "Execution queued"},
        {"id": "3", "role": "notification", "content": "Tool called"},
    ]

    assert shown(from_history(stored)) == ["status: Execution queued", "status: Tool called"]
    assert all(one["folded"] for one in messages(from_history(stored)))
