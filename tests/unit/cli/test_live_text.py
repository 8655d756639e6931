"""Envelopes as they are told in a terminal and in a pipe."""

import io
from typing import Any

from stepwell.cli.live_text import LiveTextPrinter, PrintedText


class Screen(io.StringIO):
    """Looks like a terminal."""

    def isatty(self) -> bool:
        return True


def chunk(content: str, index: int, step: int = 1, execution: str = "x1") -> dict[str, Any]:
    payload = {"step_number": step, "content": content, "chunk_index": index}
    return {"type": "agent.stream.chunk", "execution_id": execution, "payload": payload}


def tool(kind: str, **payload: Any) -> dict[str, Any]:
    told = {"tool_name": "look_up", "agent_name": None, **payload}
    return {"type": f"agent.tool.{kind}", "execution_id": "x1", "payload": told}


def test_text_is_given_out_once_and_in_order():
    text = PrintedText()
    assert [text.add(1, 0, "Hel"), text.add(1, 1, "lo"), text.add(2, 0, "Next")] == [
        "Hel",
        "lo",
        "Next",
    ]


def test_a_step_that_begins_again_with_the_same_words_is_not_doubled():
    text = PrintedText()
    text.add(1, 0, "Hello ")
    text.add(1, 1, "wor")
    again = [text.add(1, 0, "Hel"), text.add(1, 1, "lo wo"), text.add(1, 2, "rld")]
    assert again == ["", "", "ld"]
    assert text.printed == "Hello world"
    assert not text.has_restarted


def test_a_step_that_begins_again_with_other_words_is_told_whole_and_as_such():
    text = PrintedText()
    text.add(1, 0, "Hello wor")
    assert text.add(1, 0, "Help") == "Help"
    assert text.has_restarted
    assert text.add(1, 1, "!") == "!"
    assert text.printed == "Help!"


def test_a_terminal_gets_the_answer_as_it_streams_and_not_again_at_the_end():
    out, err = Screen(), io.StringIO()
    live = LiveTextPrinter("x1", out, err)
    live.hear(chunk("Good ", 0))
    live.hear(chunk("day.", 1))
    assert out.getvalue() == "Good day."
    live.answer("Good day.")
    assert out.getvalue() == "Good day.\n"


def test_an_answer_that_a_hook_rewrote_is_told_as_it_is():
    out = Screen()
    live = LiveTextPrinter("x1", out, io.StringIO())
    live.hear(chunk("Raw", 0))
    live.answer("Cooked")
    assert out.getvalue() == "Raw\nCooked\n"


def test_a_pipe_gets_only_the_whole_answer():
    out, err = io.StringIO(), io.StringIO()
    live = LiveTextPrinter("x1", out, err)
    live.hear(chunk("Let me look.", 0))
    live.hear(tool("started", args_summary="order: 7"))
    live.hear(
        tool("completed", outcome="completed", error=None, duration_ms=12.0, result_summary="ok")
    )
    assert out.getvalue() == ""
    live.answer("Shipped.")
    assert out.getvalue() == "Shipped.\n"
    assert err.getvalue() == "  -> look_up (order: 7)\n  <- look_up in 12 ms  ok\n"


def test_progress_begins_on_a_line_of_its_own():
    screen = Screen()
    live = LiveTextPrinter("x1", screen, screen)
    live.hear(chunk("Let me look.", 0))
    live.hear(tool("completed", outcome="raised", error="Error: no", duration_ms=1500.0))
    assert "Let me look.\n  <- " in screen.getvalue()
    assert "raised" in screen.getvalue()
    assert "1.5 s: no" in screen.getvalue()


def test_the_words_of_a_subagent_are_not_those_of_the_answer():
    out = Screen()
    live = LiveTextPrinter("x1", out, io.StringIO())
    live.hear(chunk("inner", 0, execution="x2"))
    assert out.getvalue() == ""


def test_what_a_model_says_can_not_steer_the_terminal():
    out = Screen()
    LiveTextPrinter("x1", out, io.StringIO()).hear(chunk("a\x1b[2Jb\u202ec", 0))
    assert out.getvalue() == "a⟨U+001B⟩[2Jb⟨U+202E⟩c"
    pipe = io.StringIO()
    LiveTextPrinter("x1", pipe, io.StringIO()).answer("a\x1b[2Jb")
    assert pipe.getvalue() == "a\x1b[2Jb\n"
