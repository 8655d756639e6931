"""AgentSpecParser: required and unknown fields, formats, and the limits of each."""

import pytest

from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.specs.front_matter import DefinitionError
from stepwell.specs.parser import AgentSpecParser


def test_b274_missing_and_unknown_fields_are_named_together() -> None:
    with pytest.raises(DefinitionError) as caught:
        AgentSpecParser().parse("---\nname: a\nfoo: 1\nbar: 2\n---\nGo.")

    assert str(caught.value).startswith("lacks description; has unknown fields: foo, bar; known: ")


def test_an_unknown_format_is_named() -> None:
    with pytest.raises(ConfigurationError, match="unknown format 'toml'; known: markdown, yaml"):
        AgentSpecParser().parse("", "toml")


def test_b271_an_unknown_extension_is_named_before_anything_is_read() -> None:
    with pytest.raises(DefinitionError, match=r"exist\.toml: unknown extension '\.toml'"):
        AgentSpecParser().parse_file("does/not/exist.toml")


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("Read, Grep", ("Read", "Grep")),
        ("[]", ()),
        ('""', ()),
        ("none", ()),
        ("[none]", ("none",)),
        ("", None),
        ("all", None),
        ("[all]", ("all",)),
        ("'*'", None),
        ("Bash(a, b), Read", ("Bash(a, b)", "Read")),
        ("['Read, Grep', Bash]", ("Read", "Grep", "Bash")),
        ("{read: true}", None),
        ("{'*': false}", ()),
    ],
)
def test_the_many_ways_to_name_tools(tools: str, expected: tuple[str, ...] | None) -> None:
    text = f"---\nname: a\ndescription: b\ntools: {tools}\n---\nGo."

    assert AgentSpecParser().parse(text).tools == expected


def test_switches_must_be_true_or_false() -> None:
    with pytest.raises(DefinitionError, match="tools: read is 'ask'; write true or false"):
        AgentSpecParser().parse("---\nname: a\ndescription: b\ntools: {read: ask}\n---\nGo.")


def test_switched_off_tools_join_the_denied_ones() -> None:
    text = "---\nname: a\ndescription: b\ntools: {write: false}\ndenied_tools: bash\n---\nGo."

    assert AgentSpecParser().parse(text).denied_tools == ("write", "bash")


def test_fields_of_the_file_go_over_its_metadata() -> None:
    text = "---\nname: a\ndescription: b\ncolor: red\nmetadata: {color: blue, x: 1}\n---\nGo."

    assert AgentSpecParser().parse(text).metadata == {"color": "red", "x": 1}


@pytest.mark.parametrize(
    ("lines", "preset", "settings"),
    [
        ("temperature: 0.2\ntop_p: 1", None, ModelSettings(temperature=0.2, top_p=1)),
        ("model: fast\ntemperature: 0", "fast", ModelSettings(temperature=0)),
        (
            "model: {temperature: 0.1}\nTemperature: 0.2\ntop_p: 0.3",
            None,
            ModelSettings(temperature=0.1, top_p=0.3),
        ),
    ],
)
def test_settings_beside_the_model_are_the_models(
    lines: str, preset: str | None, settings: ModelSettings
) -> None:
    parsed = AgentSpecParser().parse_with_notes(f"---\nname: a\ndescription: b\n{lines}\n---\nGo.")

    assert (parsed.spec.preset, parsed.spec.model_settings) == (preset, settings)
    assert (parsed.spec.metadata, parsed.notes) == ({}, ())
    assert AgentSpecParser().parse(parsed.spec.to_markdown()) == parsed.spec


def test_a_setting_that_is_no_number_is_kept_with_a_note() -> None:
    text = "---\nname: a\ndescription: b\ntemperature: low\neffort: high\n---\nGo."
    parsed = AgentSpecParser().parse_with_notes(text)

    assert parsed.spec.model is None
    assert parsed.notes == ("fields without effect: temperature, effort",)


def test_steps_are_said_once() -> None:
    text = "---\nname: a\ndescription: b\nmaxTurns: 3\nbudget: {steps: 4}\n---\nGo."

    with pytest.raises(DefinitionError, match="the budget gives steps twice"):
        AgentSpecParser().parse(text)


def test_metadata_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(DefinitionError, match="metadata is 'x'; write a mapping"):
        AgentSpecParser().parse("---\nname: a\ndescription: b\nmetadata: x\n---\nGo.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 100_000, "not JSON"),
        ('{"a": ' * 50_000, "not JSON"),
        ("1" * 5000, "not JSON|holds no"),
        ("", "line 1: not JSON: Expecting value"),
        ('{"metadata": {"a": 1e999}, "name": "a", "description": "b", "prompt": "c"}', "inf"),
    ],
)
def test_hostile_json_is_refused(text: str, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        AgentSpecParser().parse(text, "json")


def test_many_equal_names_in_json_are_refused_at_once() -> None:
    unique = ", ".join(f'"k{n}": 1' for n in range(20_000))

    with pytest.raises(DefinitionError, match="'k19999' is given twice"):
        AgentSpecParser().parse(f'{{{unique}, "k19999": 2}}', "json")


def test_yaml_of_a_file_is_not_repaired() -> None:
    with pytest.raises(DefinitionError, match="line 1: not YAML"):
        AgentSpecParser().parse("description: a: b", "yaml")


def test_a_name_of_its_file_is_only_lent_leniently() -> None:
    text = "---\ndescription: b\n---\nGo."

    lent = AgentSpecParser(strict=False).parse_with_notes(text, default_name="my-file")

    assert lent.spec.name == "my-file"
    with pytest.raises(DefinitionError, match="lacks name"):
        AgentSpecParser().parse_with_notes(text, default_name="my-file")
    with pytest.raises(DefinitionError, match="lacks name"):
        AgentSpecParser(strict=False).parse(text)
