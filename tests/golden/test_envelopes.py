"""The exact envelopes of a run: tools, an error, a retry, a subagent, questions and a cancel."""

import json
from pathlib import Path

import pytest
from msgspec import convert

from stepwell.broadcasting import BroadcastConfig
from stepwell.broadcasting.adapter import AgentEventEnvelopeAdapter
from stepwell.broadcasting.broadcasters.recorder import RecordingBroadcaster
from stepwell.journal.entry import payload_data
from stepwell.journal.envelope import PAYLOADS
from stepwell.testing import SequentialIds
from tests.golden.scenario import Scenario

VERSIONS = Path(__file__).parent / "envelopes"
FILES = VERSIONS / "v2"
"""The newest version; the others are never written again."""
PRESETS = {
    "minimal": BroadcastConfig.minimal(),
    "standard": BroadcastConfig.standard(),
    "debug": BroadcastConfig.debug(),
}


@pytest.mark.parametrize("preset", PRESETS)
async def test_the_envelopes_are_these(preset: str) -> None:
    told = (await envelopes(preset)).splitlines()
    kept = (FILES / f"{preset}.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in told] == [json.loads(line) for line in kept]


@pytest.mark.parametrize(
    "file", sorted(VERSIONS.glob("*/*.jsonl")), ids=lambda file: str(file)[-18:]
)
def test_envelopes_of_every_version_can_be_read(file: Path) -> None:
    for line in file.read_text().splitlines():
        envelope = json.loads(line)
        payload = convert(envelope["payload"], PAYLOADS[envelope["type"]])
        now = payload_data(payload)
        assert {name: now[name] for name in envelope["payload"]} == envelope["payload"]


async def envelopes(preset: str) -> str:
    """One line for each envelope of the scenario."""
    recorder = RecordingBroadcaster()
    adapter = AgentEventEnvelopeAdapter(
        recorder, "session-1", "execution-1", PRESETS[preset], new_id=SequentialIds("envelope")
    )
    await Scenario(adapter.wiretap()).run()
    await adapter.flush()
    assert (adapter.failed, adapter.dropped) == (0, 0)
    return "".join(f"{json.dumps(envelope)}\n" for envelope in recorder.envelopes)
