"""The published schema of envelopes, made from their classes: JSON Schema and TypeScript.

``python -m stepwell.journal.schema`` writes both into ``schema_files/``; a test fails while
the files there differ from the code.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from stepwell.journal.envelope import PAYLOADS, Envelope, EnvelopeType

FOLDER = Path(__file__).parent / "schema_files"
JSON_SCHEMA_FILE = FOLDER / "envelopes.schema.json"
TYPESCRIPT_FILE = FOLDER / "envelopes.d.ts"

DIALECT = "https://json-schema.org/draft/2020-12/schema"
UTC_MILLISECONDS = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{3}Z$"
REFERENCE = "#/$defs/"

_ENVELOPE_NOTE = (
    "One thing to tell user interfaces. Drop what has an id that came already; put in order by seq."
)
_SCALARS = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{ [key: string]: unknown }",
}

Schema = dict[str, Any]


def envelope_json_schema() -> Schema:
    """The JSON Schema (2020-12) of an envelope: one of the types, each with its payload.

    Every field is always there, and new ones may come.

    >>> [choice["$ref"] for choice in envelope_json_schema()["oneOf"]][:2]
    ['#/$defs/StatusEnvelope', '#/$defs/StepStartedEnvelope']
    """
    _, components = msgspec.json.schema_components(
        [Envelope, *PAYLOADS.values()], ref_template=REFERENCE + "{name}"
    )
    envelope = _complete(components.pop("Envelope"))
    for left_out in ("EnvelopeType", "Payload"):
        components.pop(left_out)
    definitions = {_envelope_name(type): _envelope_of(type, envelope) for type in PAYLOADS}
    definitions |= {name: _complete(found) for name, found in components.items()}
    return {
        "$schema": DIALECT,
        "title": "AgentEnvelope",
        "description": _ENVELOPE_NOTE,
        "oneOf": [{"$ref": REFERENCE + _envelope_name(type)} for type in PAYLOADS],
        "$defs": definitions,
    }


def envelope_typescript() -> str:
    """The same as TypeScript: ``AgentEnvelope`` is a union that ``type`` tells apart.

    >>> "export type AgentEnvelope =" in envelope_typescript()
    True
    """
    schema = envelope_json_schema()
    union = "\n".join(f"  | {_type(choice)}" for choice in schema["oneOf"])
    head = (
        "// Made from the classes in stepwell.journal.envelope; do not edit.\n\n"
        f"{_comment(schema)}export type AgentEnvelope =\n{union};\n"
    )
    return "\n".join([head, *(_declaration(name, it) for name, it in schema["$defs"].items())])


def write_files() -> None:
    """Write both files."""
    FOLDER.mkdir(exist_ok=True)
    JSON_SCHEMA_FILE.write_text(json_schema_text(), encoding="utf-8")
    TYPESCRIPT_FILE.write_text(envelope_typescript(), encoding="utf-8")


def json_schema_text() -> str:
    """The JSON Schema as it is in its file."""
    return json.dumps(envelope_json_schema(), indent=2) + "\n"


def _envelope_name(type: EnvelopeType) -> str:
    return PAYLOADS[type].__name__.removesuffix("Payload") + "Envelope"


def _envelope_of(type: EnvelopeType, envelope: Schema) -> Schema:
    payload = PAYLOADS[type]
    return {
        **envelope,
        "title": _envelope_name(type),
        "description": payload.__doc__,
        "properties": {
            **envelope["properties"],
            "type": {"const": type.value},
            "timestamp": {"type": "string", "format": "date-time", "pattern": UTC_MILLISECONDS},
            "payload": {"$ref": REFERENCE + payload.__name__},
        },
    }


def _complete(found: Schema) -> Schema:
    """Fields with a default are written as well, so that readers may rely on them."""
    if found.get("type") != "object":
        return found
    fields = {name: _without_default(field) for name, field in found["properties"].items()}
    return {
        **found,
        "properties": fields,
        "required": list(fields),
        "additionalProperties": True,
    }


def _without_default(field: Mapping[str, Any]) -> Schema:
    return {key: value for key, value in field.items() if key != "default"}


# TypeScript


def _declaration(name: str, schema: Schema) -> str:
    if "enum" in schema:
        words = " | ".join(json.dumps(word) for word in schema["enum"])
        return f"{_comment(schema)}export type {name} = {words};\n"
    fields = "\n".join(f"  {field}: {_type(kind)};" for field, kind in schema["properties"].items())
    return f"{_comment(schema)}export interface {name} {{\n{fields}\n}}\n"


def _type(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            return reference.removeprefix(REFERENCE)
        case {"const": word}:
            return json.dumps(word)
        case {"anyOf": choices}:
            return " | ".join(_type(choice) for choice in choices)
        case {"type": "array", "items": item}:
            return f"Array<{_type(item)}>"
        case {"type": str(word)}:
            return _SCALARS[word]
        case _:
            return "unknown"


def _comment(schema: Mapping[str, Any]) -> str:
    text = schema.get("description", "").replace("``", "`")
    return f"/** {' '.join(text.split())} */\n" if text else ""


if __name__ == "__main__":
    write_files()
