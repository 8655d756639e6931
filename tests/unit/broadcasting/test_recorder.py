"""The broadcaster that remembers."""

from stepwell import Agent
from stepwell.broadcasting import EnvelopeType
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.testing import ScriptedModel

STATUS = {"type": "agent.status", "seq": 1}
CHUNK = {"type": "agent.stream.chunk", "seq": 2}


def test_envelopes_and_channels_are_kept_in_order() -> None:
    recorder = RecordingBroadcaster()
    recorder.broadcast("agent.a", STATUS)
    recorder.broadcast("agent.b", CHUNK)

    assert recorder.envelopes == (STATUS, CHUNK)
    assert recorder.channels == ("agent.a", "agent.b")


def test_envelopes_are_found_by_type_word_or_member() -> None:
    recorder = RecordingBroadcaster()
    for envelope in (STATUS, CHUNK, STATUS):
        recorder.broadcast("agent.a", envelope)

    assert recorder.of_type(EnvelopeType.AGENT_STATUS) == (STATUS, STATUS)
    assert recorder.of_type("agent.stream.chunk") == (CHUNK,)
    assert recorder.of_type("agent.continuation") == ()


def test_clear_forgets_all() -> None:
    recorder = RecordingBroadcaster()
    recorder.broadcast("agent.a", STATUS)
    recorder.clear()

    assert recorder.envelopes == ()
    assert recorder.channels == ()


async def test_a_run_is_recorded_whole() -> None:
    recorder = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(recorder, "session-1", "execution-1")
    agent = Agent(ScriptedModel(["Four."]))
    agent.wiretap(adapter.wiretap())
    await agent.run("What is 2 + 2?")
    await adapter.flush()

    assert set(recorder.channels) == {"agent.session-1"}
    assert [envelope["seq"] for envelope in recorder.envelopes] == list(
        range(1, len(recorder.envelopes) + 1)
    )
    assert recorder.of_type(EnvelopeType.AGENT_STATUS)[-1]["payload"]["status"] == "completed"
