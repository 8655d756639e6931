"""The published schema files are what the classes say."""

import re

from stepwell.journal.envelope import PAYLOADS, EnvelopeType
from stepwell.journal.schema import (
    JSON_SCHEMA_FILE,
    TYPESCRIPT_FILE,
    envelope_json_schema,
    envelope_typescript,
    json_schema_text,
)

STALE = "run python -m stepwell.journal.schema"


def test_the_json_schema_file_is_up_to_date() -> None:
    assert JSON_SCHEMA_FILE.read_text("utf-8") == json_schema_text(), STALE


def test_the_typescript_file_is_up_to_date() -> None:
    assert TYPESCRIPT_FILE.read_text("utf-8") == envelope_typescript(), STALE


def test_there_is_one_definition_for_each_type_of_envelope() -> None:
    schema = envelope_json_schema()
    chosen = [choice["$ref"].removeprefix("#/$defs/") for choice in schema["oneOf"]]
    types = [schema["$defs"][name]["properties"]["type"]["const"] for name in chosen]

    assert types == list(EnvelopeType)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_every_field_of_every_payload_is_required() -> None:
    definitions = envelope_json_schema()["$defs"]

    for payload in PAYLOADS.values():
        found = definitions[payload.__name__]
        assert found["required"] == list(payload.__struct_fields__)
        assert list(found["properties"]) == list(payload.__struct_fields__)
        assert found["additionalProperties"] is True


def test_every_reference_leads_somewhere_and_nothing_is_left_over() -> None:
    named = set(re.findall(r"#/\$defs/(\w+)", json_schema_text()))

    assert named == set(envelope_json_schema()["$defs"])


def test_the_types_are_explained_in_typescript() -> None:
    text = envelope_typescript()

    for payload in PAYLOADS.values():
        first_words = (payload.__doc__ or "").split(";")[0].replace("``", "`")
        assert f"/** {first_words}" in text
        assert f"export interface {payload.__name__} {{" in text
