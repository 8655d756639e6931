"""The published schema holds for what runs broadcast, and notices what is wrong."""

import copy
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from stepwell.journal.envelope import EnvelopeType
from stepwell.journal.schema import TYPESCRIPT_FILE, envelope_json_schema
from tests.integration.broadcasting.rich_run import PRESETS, eventful_run
from tests.servers.node import PACKAGES, find_node, why_missing
from tests.unit.broadcasting.following import assert_in_order

COMPILER = PACKAGES / "typescript" / "bin" / "tsc"
VALIDATOR = Draft202012Validator(envelope_json_schema())
Place = tuple[str, ...]


def compiler_says(folder: Path, lines: list[str]) -> str:
    """What the TypeScript compiler has to complain of in a module with these lines."""
    reason = why_missing(COMPILER)
    if reason is not None:
        pytest.skip(reason)
    node = find_node()
    assert node is not None
    (folder / TYPESCRIPT_FILE.name).write_text(TYPESCRIPT_FILE.read_text("utf-8"), "utf-8")
    module = folder / "told.ts"
    head = 'import type { AgentEnvelope } from "./envelopes";'
    module.write_text("\n".join([head, *lines]), "utf-8")
    options = ["--strict", "--noEmit", "--module", "esnext", "--moduleResolution", "bundler"]
    ran = subprocess.run(
        [node.node, str(COMPILER), *options, module.name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode == 0) == (ran.stdout == ""), ran.stderr
    return ran.stdout


@pytest.mark.parametrize("preset", PRESETS)
async def test_every_envelope_of_a_full_run_fits_the_json_schema(preset: str) -> None:
    envelopes = await eventful_run(PRESETS[preset])

    faults = [
        (envelope["type"], error.json_path, error.message)
        for envelope in envelopes
        for error in VALIDATOR.iter_errors(envelope)
    ]

    assert faults == []
    assert_in_order(envelopes)
    statuses = {e["payload"]["status"] for e in envelopes if e["type"] == "agent.status"}
    assert statuses == {"processing", "paused", "completed", "cancelled"}
    left_out = {
        "minimal": {"agent.stream.chunk", "agent.continuation"},
        "standard": {"agent.continuation"},
        "debug": set[str](),
    }
    assert {envelope["type"] for envelope in envelopes} == set(EnvelopeType) - left_out[preset]


async def test_every_envelope_of_full_runs_fits_the_typescript_types(tmp_path: Path) -> None:
    lines = [
        f"export const {name}: AgentEnvelope[] = {json.dumps(await eventful_run(config))};"
        for name, config in PRESETS.items()
    ]
    lines.append("for (const it of debug) {")
    lines.append('  if (it.type === "agent.tool.completed") it.payload.success;')
    lines.append("}")

    assert compiler_says(tmp_path, lines) == ""


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Where something can be put that does not belong there; any arguments are good ones."""
    if at:
        yield at
    if isinstance(value, dict) and at[-1:] != ("args",):
        for name in value:
            yield from places(value[name], (*at, name))


def mutated(envelope: Any, at: Place, *, remove: bool) -> Any:
    changed = copy.deepcopy(envelope)
    inner = changed
    for name in at[:-1]:
        inner = inner[name]
    if remove:
        del inner[at[-1]]
    else:
        is_object = isinstance(inner[at[-1]], dict) or at[-1] == "args"
        inner[at[-1]] = "wrong" if is_object else {"wrong": True}
    return changed


async def all_mutations() -> list[Any]:
    """One envelope of each type, with each of its fields wrong once and missing once."""
    samples = {envelope["type"]: envelope for envelope in await eventful_run(PRESETS["debug"])}
    return [
        mutated(sample, at, remove=remove)
        for sample in samples.values()
        for at in places(sample)
        for remove in (True, False)
    ]


async def test_the_json_schema_notices_every_wrong_or_missing_field() -> None:
    mutations = await all_mutations()

    assert len(mutations) > 150
    assert [wrong for wrong in mutations if VALIDATOR.is_valid(wrong)] == []


async def test_the_typescript_types_notice_every_wrong_or_missing_field(tmp_path: Path) -> None:
    """The compiler complains of each of these marks below which it finds nothing wrong."""
    lines: list[str] = []
    for number, wrong in enumerate(await all_mutations()):
        lines += [
            "// @ts-expect-error",
            f"export const m{number}: AgentEnvelope = {json.dumps(wrong)};",
        ]

    assert compiler_says(tmp_path, lines) == ""


async def test_the_compiler_is_really_asked(tmp_path: Path) -> None:
    lines = ['export const wrong: AgentEnvelope = { type: "agent.status" };']

    assert "told.ts(2" in compiler_says(tmp_path, lines)


@pytest.mark.parametrize(
    ("field", "value"),
    [("timestamp", "2026-01-01T12:00:00+00:00"), ("type", "agent.unknown"), ("seq", 1.5)],
)
async def test_the_json_schema_is_strict_about_words_and_times(field: str, value: Any) -> None:
    envelopes = await eventful_run(PRESETS["minimal"])

    assert VALIDATOR.is_valid(envelopes[0])
    assert not VALIDATOR.is_valid({**envelopes[0], field: value})


async def test_new_fields_may_come() -> None:
    envelope = (await eventful_run(PRESETS["minimal"]))[0]
    payload = {**envelope["payload"], "brand_new": 1}

    assert VALIDATOR.is_valid({**envelope, "payload": payload, "also_new": 2})
