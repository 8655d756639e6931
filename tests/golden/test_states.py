"""Stored states of every schema version always load, and the newest version stays what it is.

``./dev python -m tests.golden.write`` writes the files of a new version; those of a released one
are never written again.
"""

import json
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from stepwell import AgentState
from stepwell.serialization import AgentStateSerializer
from stepwell.serialization.document import SCHEMA_VERSION, StoredChange, StoredState
from tests.golden.scenario import Scenario

HERE = Path(__file__).parent
NEWEST = HERE / f"v{SCHEMA_VERSION}"
SERIALIZER = AgentStateSerializer()


@pytest.mark.parametrize("version", [path.name for path in sorted(HERE.glob("v*"))])
def test_the_states_of_every_version_load(version: str) -> None:
    folder = HERE / version
    facts = json.loads((folder / "facts.json").read_text())
    final = SERIALIZER.from_json((folder / "state.json").read_bytes())
    assert told_of(final) == facts["state.json"]
    paused = SERIALIZER.from_json((folder / "paused.json").read_bytes())
    assert told_of(paused) == facts["paused.json"]
    first, *increments = (folder / "increments.jsonl").read_bytes().splitlines()
    assert SERIALIZER.from_increments(first, increments) == final


async def test_the_newest_version_is_written_as_it_was() -> None:
    for name, content in golden_files(await Scenario().run()).items():
        assert (NEWEST / name).read_bytes() == content, f"{name} differs: see versions.py"


def told_of(state: AgentState) -> dict[str, object]:
    """What any version must tell of a state."""
    usage, steps = state.usage, state.steps
    return {
        "status": state.status,
        "explained": state.explain(),
        "messages": [[message.role, message.text] for message in state.messages],
        "calls": [[call.id, dict(call.arguments)] for m in state.messages for call in m.tool_calls],
        "steps": [[step.step.step_type, step.duration_seconds] for step in steps],
        "results": [[e.outcome, e.value] for step in steps for e in step.step.tool_executions],
        "errors": [error.text for step in steps for error in step.step.errors],
        "usage": [usage.input_tokens, usage.output_tokens],
        "pending": [[asked.kind, asked.prompt] for asked in state.pending],
        "times": [str(state.created_at), str(state.updated_at), state.cumulative_seconds],
    }


async def test_a_stored_pause_goes_on_to_the_same_end() -> None:
    kept = Scenario()
    states = await kept.run()

    class Stored(Scenario):
        """Stores and loads every state on its way."""

        async def _ran(self, state: AgentState) -> list[AgentState]:
            stored = SERIALIZER.from_json(SERIALIZER.to_json(state))
            return await super()._ran(stored)

    assert (await Stored().run())[-1] == states[-1]


def test_what_is_stored_has_the_shape_of_its_version() -> None:
    assert shape() == json.loads((NEWEST / "shape.json").read_text()), (
        "a class that is part of stored states changed: make it a new version, see versions.py"
    )


def shape() -> dict[str, object]:
    """The JSON Schema of what is stored, without its prose."""
    _, parts = msgspec.json.schema_components([StoredState, StoredChange], ref_template="{name}")
    plain = json.loads(json.dumps(parts))
    return {name: _without_prose(part) for name, part in sorted(plain.items())}


def _without_prose(value: object) -> object:
    if isinstance(value, list):
        return [_without_prose(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_prose(item) for key, item in value.items() if key != "description"}
    return value


def golden_files(states: list[AgentState]) -> dict[str, bytes]:
    """What is kept of the scenario, by file name."""
    paused = next(state for state in states if state.pending)
    increments = [SERIALIZER.increment_to_json(one, other) for one, other in pairwise(states)]
    chain = [SERIALIZER.to_json(states[0]), *increments]
    return {
        "state.json": SERIALIZER.to_json(states[-1]),
        "paused.json": SERIALIZER.to_json(paused),
        "facts.json": _facts({"state.json": told_of(states[-1]), "paused.json": told_of(paused)}),
        "increments.jsonl": b"\n".join(chain) + b"\n",
    }


def _facts(told: object) -> bytes:
    return json.dumps(told, indent=1).encode() + b"\n"
