"""The message list in the page of an app server: ends, durations, executions that are over."""

from tests.integration.ui.envelopes import chunk, completed, envelope, listed, started
from tests.message_list import (
    from_history,
    messages,
    missing,
    needs_history,
    newest,
    reconciled,
    status,
)


def ended(seq: int, execution: str, status: str = "completed") -> dict[str, object]:
    return envelope(seq, "status", execution, status=status)


def test_a_block_has_its_execution_and_how_long_it_took() -> None:
    [block, *_] = messages(listed([started(1, "c1")]))
    assert (block["execution"], block["duration_ms"]) == ("e1", None)

    done = envelope(2, "tool.completed", "e1", tool_call_id="c1", tool_name="t", duration_ms=12.5)
    [block, *_] = messages(listed([started(1, "c1"), done]))
    assert block["duration_ms"] == 12.5


def test_a_stored_call_may_bring_its_summary_and_its_duration() -> None:
    call = {"id": "c1", "name": "look", "summary": "order: 7", "arguments": {"not": "read"}}
    result = {"tool_call_id": "c1", "duration_ms": 3}
    stored = [
        {"id": "e7:1:c1", "role": "assistant", "content": "", "metadata": {"tool_calls": [call]}},
        {"id": "e7:1:c1", "role": "tool", "content": "shipped", "metadata": result},
    ]

    [block] = messages(from_history(stored))

    assert (block["summary"], block["execution"], block["duration_ms"]) == ("order: 7", "e7", 3)


def test_only_an_end_that_was_no_completion_is_not_folded() -> None:
    stored = [
        {"id": word, "role": "notification", "content": word, "metadata": {"status": word}}
        for word in ("completed", "stopped", "cancelled", "failed")
    ]

    shown = messages(from_history(stored))

    assert [(one["id"], one["error"]) for one in shown if not one["folded"]] == [
        ("stopped", False),
        ("cancelled", False),
        ("failed", True),
    ]


def test_an_execution_that_is_over_is_told_by_what_is_stored_though_an_older_one_is_not() -> None:
    other = envelope(3, "stream.chunk", "e2", step_number=1, chunk_index=0, content="Second")
    list = listed([chunk(2, 0, "First", last=True), other, ended(4, "e1")])
    assert needs_history(list)
    stored = [{"id": "e1:1:answer", "role": "assistant", "content": "First"}]

    list = reconciled(list, stored, 1, ["e1"])

    assert not needs_history(list)
    assert [one["content"] for one in messages(list)][:2] == ["First", "Second"]
    assert (newest(list), missing(list), status(list)) == (4, [], "processing")


def test_without_a_word_on_what_is_over_its_envelopes_stay() -> None:
    list = reconciled(listed([completed(2, "c1"), ended(3, "e1")]), [], 1)
    assert needs_history(list)
    assert [one["role"] for one in messages(list)] == ["tool"]
