"""A step that another worker begins anew is shown once: what the first attempt told is dropped."""

import itertools
from typing import Any

from tests.integration.ui.envelopes import (
    blocks,
    chunk,
    completed,
    envelope,
    listed,
    shown,
    started,
)


def began(seq: int, step: int = 1) -> dict[str, Any]:
    return envelope(seq, "step.started", step_number=step)


def ended(seq: int, step: int = 1) -> dict[str, Any]:
    return envelope(seq, "step.completed", step_number=step)


def test_text_and_calls_of_an_unfinished_step_go_when_it_begins_anew() -> None:
    before = [began(1), chunk(2, 0, "I will "), chunk(3, 1, "look"), started(4, "c1")]
    list = listed([*before, completed(5, "c1"), started(6, "c2")])
    assert shown(list) == [
        "assistant: I will look",
        "tool: lookfound",
        "tool: look",
        "status: Working: step 1",
    ]
    list = listed([began(7)], list)
    assert shown(list) == ["status: Working: step 1"]
    list = listed([started(8, "c2"), chunk(9, 0, "Here", last=True)], list)
    assert shown(list) == ["tool: look", "assistant: Here", "status: Working: step 1"]


def test_what_earlier_steps_told_stays() -> None:
    first = [began(1), chunk(2, 0, "One", last=True), started(3, "c1"), completed(4, "c1")]
    list = listed([*first, ended(5), began(6, 2), chunk(7, 0, "Two", step=2), began(8, 2)])
    assert shown(list) == ["assistant: One", "tool: lookfound", "status: Working: step 2"]


def test_a_step_that_was_done_is_not_dropped() -> None:
    list = listed([began(1), chunk(2, 0, "One", last=True), started(3, "c1"), ended(4), began(5)])
    assert shown(list)[:2] == ["assistant: One", "tool: look"]


def test_a_call_that_waited_in_an_earlier_step_keeps_its_block() -> None:
    asks = envelope(3, "tool.completed", tool_name="look", tool_call_id="c1", outcome="pending")
    list = listed([began(1), started(2, "c1"), asks, ended(4), began(5, 2), started(6, "c1", 2)])
    list = listed([began(7, 2)], list)
    assert [one["id"] for one in blocks(list)] == ["c1"]
    list = listed([started(8, "c1", 2), completed(9, "c1")], list)
    assert [(one["id"], one["state"]) for one in blocks(list)] == [("c1", "done")]


def test_a_subagent_of_the_first_attempt_goes_with_its_call() -> None:
    whose = {"parent_execution_id": "e1", "parent_tool_call_id": "c1", "step_number": 1}
    children = [
        envelope(seq, "stream.chunk", f"child{seq}", **whose, content=f"{seq}", chunk_index=0)
        for seq in (3, 6)
    ]
    list = listed([began(1), started(2, "c1"), children[0], began(4), started(5, "c1")])
    assert [len(one["children"]) for one in blocks(list)] == [0]
    [block] = blocks(listed([children[1]], list))
    assert [one["content"] for one in block["children"] if one["role"] == "assistant"] == ["6"]


def test_what_is_shown_does_not_depend_on_the_order_in_which_it_came() -> None:
    came = [began(1), chunk(2, 0, "Old"), started(3, "c1"), began(4), chunk(5, 0, "New")]
    seen = {tuple(shown(listed(order))) for order in itertools.permutations(came)}
    assert seen == {("assistant: New", "status: Working: step 1")}
