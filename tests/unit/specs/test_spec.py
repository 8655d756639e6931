"""AgentSpec: what it refuses, which tools it is given, what an untrusted one loses."""

from typing import Any

import pytest
from msgspec.structs import replace

from stepwell.errors import ConfigurationError
from stepwell.models import ModelSettings
from stepwell.specs.spec import AgentModel, AgentSpec
from stepwell.state import Budget

HOST = ("bash", "read_file", "search_files", "mcp__git__log", "spawn_subagent")


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec(**{"name": "a", "description": "b", "system_prompt": "c", **fields})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": 5}, "name must be text, got 5"),
        ({"name": "a/b"}, "looks like a path"),
        ({"name": "a\nb"}, "contains the character U\\+000A"),
        ({"name": "x" * 101}, "name has 101 characters; use at most 100"),
        ({"description": " \n"}, "description is empty"),
        ({"system_prompt": None}, "system_prompt must be text"),
        ({"system_prompt": "\ud800"}, "half a character"),
        ({"system_prompt": "a\0"}, "NUL character"),
        ({"tools": "Read"}, "tools must be a list of names, got 'Read'"),
        ({"tools": [""]}, "a name in tools is empty"),
        ({"tools": ["Read, Grep"]}, "a name in tools contains a comma"),
        ({"skills": [1]}, "a name in skills must be text"),
        ({"model": 3}, "give a preset's name, 'inherit' or an AgentModel"),
        ({"model": ""}, "model is empty"),
        ({"budget": 3}, "write Budget"),
        ({"budget": Budget(steps=1.5)}, "budget steps must be a number"),  # pyright: ignore[reportArgumentType]
        ({"metadata": []}, "metadata must be a mapping"),
        ({"metadata": {"a": object()}}, "metadata contains <object"),
        ({"metadata": {"a": float("nan")}}, "metadata contains nan"),
        ({"metadata": {1: 2}}, "metadata has the key 1"),
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        spec(**fields)


def test_headers_are_no_business_of_a_spec() -> None:
    with pytest.raises(ConfigurationError, match="can't set headers"):
        AgentModel(settings=ModelSettings(extra_headers={"a": "b"}))


def test_the_metadata_is_a_copy() -> None:
    inner = ["x"]
    given = {"a": inner}
    made = spec(metadata=given)
    inner.append("y")
    given["b"] = []

    assert made.metadata == {"a": ["x"]}


def test_no_tools_key_inherits_all_and_an_empty_one_has_none() -> None:
    assert spec().offered_tools(HOST) == HOST
    assert spec(tools=()).offered_tools(HOST) == ()
    assert spec(tools=["*"]).tools is None


def test_only_tools_of_the_host_are_given_in_its_order() -> None:
    chosen = spec(tools=["search_files", "launch_missiles", "read_file"])

    assert chosen.offered_tools(HOST) == ("read_file", "search_files")
    assert chosen.missing_tools(HOST) == ("launch_missiles",)


def test_names_of_other_programs_mean_our_tools() -> None:
    foreign = spec(tools=["Read", "Grep", "glob", "Task", "WebFetch"])

    assert foreign.offered_tools(HOST) == ("read_file", "search_files", "spawn_subagent")
    assert foreign.missing_tools(HOST) == ("WebFetch",)


def test_a_tool_of_the_host_goes_before_a_foreign_name() -> None:
    assert spec(tools=["Read"]).offered_tools(["Read", "read_file"]) == ("Read",)


def test_a_star_stands_for_any_letters() -> None:
    assert spec(tools=["mcp__git__*"]).offered_tools(HOST) == ("mcp__git__log",)


def test_denied_tools_are_taken_away() -> None:
    assert spec(denied_tools=["Bash", "mcp__*", "Task"]).offered_tools(HOST) == (
        "read_file",
        "search_files",
    )
    assert spec(tools=["bash"], denied_tools=["bash"]).offered_tools(HOST) == ()
    assert spec(denied_tools=["*"]).offered_tools(HOST) == ()


def test_limits_on_arguments_never_give_more_than_they_say() -> None:
    limited = spec(tools=["Bash(git:*)", "Read"])

    assert limited.offered_tools(HOST) == ("read_file",)
    assert limited.missing_tools(HOST) == ("Bash(git:*)",)
    assert "bash" not in spec(denied_tools=["Bash(rm:*)"]).offered_tools(HOST)


def test_the_model_is_a_preset_settings_or_the_parents() -> None:
    tuned = spec(model=AgentModel(preset="fast", settings=ModelSettings(temperature=0.1)))

    assert [spec(model=m).preset for m in (None, "inherit", "Inherit", "fast")] == [
        *(None, None, None, "fast")
    ]
    assert (tuned.preset, tuned.model_settings.temperature) == ("fast", 0.1)
    assert spec(model="fast").model_settings == ModelSettings()


def test_an_untrusted_spec_keeps_only_what_is_harmless() -> None:
    settings = ModelSettings(model="giant", temperature=0.1, extra_body={"web": True})
    given = spec(model=AgentModel(preset="costly", settings=settings), tools=("bash",))

    tamed, note = given.as_untrusted(["cheap"])

    assert not tamed.trusted
    assert tamed.preset is None
    assert tamed.model_settings == ModelSettings(temperature=0.1)
    assert tamed.tools == ("bash",)
    assert note is not None
    assert "'costly'" in note


def test_an_untrusted_spec_may_use_an_allowed_model() -> None:
    given = spec(model="cheap")

    assert given.as_untrusted(["cheap"]) == (replace(given, trusted=False), None)
    assert spec(model="inherit").as_untrusted() == (spec(model="inherit", trusted=False), None)


def test_trust_is_not_written_to_files() -> None:
    assert spec(trusted=False).to_dict() == spec().to_dict()


def test_a_dictionary_holds_only_what_is_said() -> None:
    assert spec().to_dict() == {"name": "a", "description": "b", "system_prompt": "c"}
    assert spec(tools=()).to_dict()["tools"] == []
    assert AgentSpec.from_dict(spec(tools=()).to_dict()) == spec(tools=())


def test_what_is_written_is_easy_to_read() -> None:
    written = spec(
        tools=["read_file", "Bash(git:*)"],
        model=AgentModel(preset="fast", settings=ModelSettings(stop=("END",))),
        budget=Budget(steps=3),
        system_prompt="Read it.\n\nThen say: done.",
    )

    assert written.to_markdown() == (
        "---\nname: a\ndescription: b\ntools:\n  - read_file\n"
        '  - "Bash(git:*)"\nmodel:\n  preset: fast\n  stop:\n    - END\nbudget:\n  steps: 3\n'
        "---\n\nRead it.\n\nThen say: done.\n"
    )
    assert "system_prompt: |-\n  Read it.\n\n  Then say: done.\n" in written.to_yaml()
