"""What an adapter refuses, and what it says of itself."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from stepwell import Agent
from stepwell.broadcasting import AgentEventEnvelopeAdapter, BroadcastConfig, CompositeBroadcaster
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.errors import ConfigurationError
from stepwell.testing import MockTool, ScriptedModel, call


class Broken:
    async def broadcast(self, channel: str, envelope: Mapping[str, Any]) -> None:
        raise ConnectionError("no route")


def stepping_agent() -> Agent:
    turns = [call("look", id="c1"), call("look", id="c2"), "Hi."]
    return Agent(ScriptedModel(turns), tools=[MockTool.returning("look", "x")])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (RecordingBroadcaster, r"the class RecordingBroadcaster; give an object of it: Recording"),
        (None, r"Adapter was given None, which is not a broadcaster; give a broadcaster, such as"),
        ("redis://", r"given 'redis://'.* a method broadcast\(channel, envelope\)"),
        ([RecordingBroadcaster()], r"given a list.* CompositeBroadcaster\(first, second\)"),
        (print, r"given <built-in function print>"),
    ],
)
def test_what_cant_broadcast_is_refused_at_once(given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        AgentEventEnvelopeAdapter(given, "s1", "e1")


@pytest.mark.parametrize("wrong", [42, "", None, b"s1"])
@pytest.mark.parametrize("name", ["session_id", "execution_id"])
def test_ids_are_texts_with_something_in_them(name: str, wrong: Any) -> None:
    ids = {"session_id": "s1", "execution_id": "e1", name: wrong}
    with pytest.raises(ConfigurationError, match=f"{name} is {wrong!r}; give a text"):
        AgentEventEnvelopeAdapter(RecordingBroadcaster(), **ids)


@pytest.mark.parametrize("wrong", [42, ""])
def test_the_next_id_and_the_channel_are_such_texts_as_well(wrong: Any) -> None:
    adapter = AgentEventEnvelopeAdapter(RecordingBroadcaster(), "s1", "e1")
    with pytest.raises(ConfigurationError, match="execution_id is"):
        adapter.reset(wrong)
    assert adapter.execution_id == "e1"
    with pytest.raises(ConfigurationError, match="channel is"):
        AgentEventEnvelopeAdapter(RecordingBroadcaster(), "s1", "e1", channel=wrong)


@pytest.mark.parametrize("wrong", ["7", 1.5, True, None, -1])
def test_a_number_to_count_from_is_a_whole_one(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"first_seq is .*; give a whole number"):
        AgentEventEnvelopeAdapter(RecordingBroadcaster(), "s1", "e1", first_seq=wrong)


@pytest.mark.parametrize("wrong", ["debug", BroadcastConfig.debug, None])
def test_a_config_is_an_object(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"such as BroadcastConfig\.debug\(\)"):
        AgentEventEnvelopeAdapter(RecordingBroadcaster(), "s1", "e1", wrong)


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("max_queued", 0, "a whole number above zero"),
        ("max_queued", 1.5, "a whole number above zero"),
        ("max_queued", "5", "a whole number above zero"),
        ("max_queued", True, "a whole number above zero"),
        ("max_queued", None, "a whole number above zero"),
        ("max_arg_length", 2.0, "a whole number above zero"),
        ("max_arg_length", -1, "a whole number above zero"),
        ("send_timeout", 0, "a number above zero"),
        ("send_timeout", "10", "a number above zero"),
        ("send_timeout", True, "a number above zero"),
        ("send_timeout", float("nan"), "a number above zero"),
        ("include_stream_chunks", "no", "True or False"),
        ("include_continuation_trace", 1, "True or False"),
        ("include_tool_args", None, "True or False"),
        ("auto_status_tracking", 0, "True or False"),
    ],
)
def test_settings_of_the_wrong_kind_are_refused(setting: str, value: Any, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{setting} is .*; give {wanted}"):
        BroadcastConfig(**{setting: value})


def test_a_whole_number_of_seconds_is_one_as_well() -> None:
    assert BroadcastConfig(send_timeout=3).send_timeout == 3
    assert BroadcastConfig().max_queued == 10_000


async def test_an_adapter_says_where_it_stands() -> None:
    agent = stepping_agent()
    adapter = AgentEventEnvelopeAdapter(RecordingBroadcaster(), "s1", "e1")
    assert repr(adapter) == "AgentEventEnvelopeAdapter(execution_id='e1', status=idle)"
    agent.wiretap(adapter)
    await agent.run("Go.")

    assert repr(adapter) == "AgentEventEnvelopeAdapter(execution_id='e1', status=completed)"


async def test_every_broadcaster_has_counts_and_an_error_of_its_own() -> None:
    broken, screen, agent = Broken(), RecordingBroadcaster(), stepping_agent()
    adapter = AgentEventEnvelopeAdapter(CompositeBroadcaster(screen, broken), "s1", "e1")
    assert adapter.last_error is None
    agent.wiretap(adapter)
    await agent.run("Go.")
    await adapter.flush()

    of_screen, of_broken = adapter.deliveries
    sent = len(screen.envelopes)
    assert (of_screen.broadcaster, of_broken.broadcaster) == (screen, broken)
    assert (of_screen.delivered, of_screen.failed, of_screen.last_error) == (sent, 0, None)
    assert (of_broken.delivered, of_broken.failed) == (0, sent)
    assert of_broken.last_error == adapter.last_error == "ConnectionError: no route"
    assert (adapter.waiting, adapter.dropped) == (0, 0)


def test_what_waits_is_counted_and_sent_by_a_flush() -> None:
    screen = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1")
    adapter.on_agent_status_changed("processing")
    adapter.on_agent_status_changed("cancelled")
    assert (adapter.waiting, adapter.delivered) == (2, 0)

    asyncio.run(adapter.flush())

    assert (adapter.waiting, adapter.delivered) == (0, 2)


async def test_a_session_goes_on_counting_with_another_adapter() -> None:
    screen = RecordingBroadcaster()
    first = AgentEventEnvelopeAdapter(screen, "s1", "e1")
    assert first.next_seq == 1
    first.on_agent_status_changed("processing")
    first.on_agent_status_changed("completed")
    await first.flush()
    second = AgentEventEnvelopeAdapter(screen, "s1", "e2", first_seq=first.next_seq)
    second.on_agent_status_changed("processing")
    await second.flush()

    assert [envelope["seq"] for envelope in screen.envelopes] == [1, 2, 3]
    assert second.next_seq == 4


def test_who_steps_by_hand_finds_each_step_delivered() -> None:
    agent, screen = stepping_agent(), RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(screen, "s1", "e1")
    agent.wiretap(adapter)
    state, sent = agent.new_state("Go."), [0]
    for _ in range(3):
        state = agent.next_step_sync(state)
        sent.append(len(screen.envelopes))
        assert (adapter.waiting, adapter.delivered) == (0, len(screen.envelopes))
        assert adapter.next_seq == len(screen.envelopes) + 1

    assert sent == sorted(set(sent))
    assert state.is_finished
    assert screen.envelopes[-1]["payload"]["status"] == "completed"
