"""Words that are written in advance: they come whole, in pieces, and at a pace."""

from stepwell.app.scripted_words import Pace, ScriptedTurn, ScriptedWords, call, words_of
from stepwell.messages import FinishReason, Message
from stepwell.models import ModelRequest, ResponseEnd, TextDelta
from stepwell.testing import FakeClock

REQUEST = ModelRequest(messages=[Message.user("Hi")])
TEXT = "# A title\n\n- one\n- two  \n\n```python\n    x = 1\n```\n"


async def streamed(model: ScriptedWords) -> tuple[list[str], ResponseEnd]:
    parts = [part async for part in model.stream(REQUEST)]
    end = parts.pop()
    assert isinstance(end, ResponseEnd)
    assert all(isinstance(part, TextDelta) for part in parts)
    return [part.text for part in parts], end


def test_words_together_are_the_text() -> None:
    for text in (TEXT, "", " ", "one", "\n\nlate", "end  \n"):
        assert "".join(words_of(text)) == text


async def test_a_stream_gives_the_text_in_words_and_then_the_whole() -> None:
    pieces, end = await streamed(ScriptedWords(lambda request: ScriptedTurn(TEXT)))
    assert len(pieces) > 5
    assert "".join(pieces) == TEXT == end.response.text
    assert end.response.finish_reason is FinishReason.STOP
    assert end.response.usage.total_tokens > 0


async def test_calls_end_a_turn_as_tool_calls() -> None:
    turn = ScriptedTurn("Let me see.", (call("look", at="this"),))
    response = await ScriptedWords(lambda request: turn).respond(REQUEST)
    assert response.finish_reason is FinishReason.TOOL_CALLS
    assert response.tool_calls[0].arguments == {"at": "this"}


async def test_words_come_at_their_pace() -> None:
    clock = FakeClock()
    before = clock.monotonic()
    words = ScriptedWords(
        lambda request: ScriptedTurn("One two three."), pace=Pace(before=1.0, word=0.5), clock=clock
    )
    await streamed(words)
    assert clock.monotonic() - before == 2.5
