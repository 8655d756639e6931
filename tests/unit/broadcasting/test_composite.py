"""Several broadcasters as one."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from stepwell.broadcasting.broadcasters.composite import CompositeBroadcaster, members_of
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.broadcasting.delivery.delivery import Delivery
from stepwell.errors import ConfigurationError, StepwellError

STATUS = {"type": "agent.status", "payload": {"status": "idle"}}


class Broken:
    def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        raise ConnectionError("nobody there")


class AsyncRecorder(RecordingBroadcaster):
    async def broadcast(self, channel: str, envelope: Mapping[str, Any], /) -> None:
        await asyncio.sleep(0)
        super().broadcast(channel, envelope)


async def test_every_member_is_sent_the_envelope() -> None:
    sync, in_loop = RecordingBroadcaster(), AsyncRecorder()
    await CompositeBroadcaster(sync, in_loop).broadcast("agent.s", STATUS)

    assert sync.envelopes == in_loop.envelopes == (STATUS,)
    assert sync.channels == in_loop.channels == ("agent.s",)


async def test_a_member_that_fails_keeps_no_other_from_the_envelope() -> None:
    first, last = RecordingBroadcaster(), AsyncRecorder()
    with pytest.raises(StepwellError) as raised:
        await CompositeBroadcaster(first, Broken(), last).broadcast("agent.s", STATUS)

    assert first.envelopes == last.envelopes == (STATUS,)
    assert str(raised.value) == (
        "1 of 3 broadcasters could not send the envelope: Broken: ConnectionError: nobody there"
    )


def test_composites_in_a_composite_are_flattened_in_order() -> None:
    a, b, c = RecordingBroadcaster(), RecordingBroadcaster(), RecordingBroadcaster()
    nested = CompositeBroadcaster(a, CompositeBroadcaster(CompositeBroadcaster(b), c))

    assert nested.members == (a, b, c)
    assert members_of(nested) == (a, b, c)
    assert members_of(a) == (a,)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ((), r"has no broadcasters; write CompositeBroadcaster\(first, second\)"),
        (
            ([RecordingBroadcaster()],),
            r"a list, .* write CompositeBroadcaster\(first, second",
        ),
        (
            (RecordingBroadcaster,),
            r"the class RecordingBroadcaster; .*Broadcaster\(\.\.\.\)",
        ),
        ((RecordingBroadcaster(), None), "CompositeBroadcaster was given None, .* a method"),
        ((print,), "given <built-in function print>, which is not a broadcaster"),
    ],
)
def test_what_cant_broadcast_is_refused_at_once(given: tuple[Any, ...], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        CompositeBroadcaster(*given)


async def test_members_do_not_share_the_envelope() -> None:
    first, second = RecordingBroadcaster(), RecordingBroadcaster()
    await CompositeBroadcaster(first, second).broadcast("agent.s", STATUS)

    assert first.envelopes[0] is not second.envelopes[0]
    assert first.envelopes[0]["payload"] is not second.envelopes[0]["payload"]


async def test_a_composite_works_in_a_queue_as_any_other() -> None:
    recorder = RecordingBroadcaster()
    delivery = Delivery(
        CompositeBroadcaster(recorder, Broken()), max_queued=10, send_timeout=3600.0
    )
    delivery.put("agent.s", STATUS)
    await delivery.flush()

    assert recorder.envelopes == (STATUS,)
    assert (delivery.delivered, delivery.failed) == (0, 1)
    assert "Broken: ConnectionError" in str(delivery.last_error)
