"""Servers, names, arguments and results of MCP, without a server."""

import subprocess
import sys
from base64 import b64encode
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from stepwell import Agent, ConfigurationError
from stepwell.capabilities.mcp import McpConnectionError, McpServer, UseMcp
from stepwell.capabilities.mcp.definitions import ToolDefinition, usable_name
from stepwell.capabilities.mcp.errors import describe_error
from stepwell.capabilities.mcp.results import format_result
from stepwell.capabilities.mcp.tool import McpTool
from stepwell.errors import InvalidToolArgumentsError
from stepwell.secrets import hide
from stepwell.testing import ScriptedModel
from stepwell.tools import ToolEffect, ToolFailure

CANARY = "canary-7f3a9c"


def server() -> McpServer:
    return McpServer.http("http://127.0.0.1:9/mcp", name="example")


def tool(parameters: dict[str, Any]) -> McpTool:
    definition = ToolDefinition(name="place", description="Place.", parameters=parameters)
    return McpTool(
        server(),
        definition,
        name="place",
        effect=ToolEffect.EXTERNAL,
        timeout=None,
        max_result_chars=100,
    )


def text(*texts: str, structured: Any = None, is_error: bool = False) -> CallToolResult:
    content = [TextContent(type="text", text=said) for said in texts]
    return CallToolResult(content=content, structured_content=structured, is_error=is_error)


# Servers


def test_an_agent_is_built_inside_the_block_of_its_server() -> None:
    with pytest.raises(
        ConfigurationError, match=r"async with McpServer\.stdio\(\.\.\.\) as server"
    ):
        Agent(ScriptedModel([]), capabilities=[UseMcp(server())])


async def test_a_call_without_a_connection_says_so() -> None:
    with pytest.raises(McpConnectionError, match="'example' is not connected"):
        await server().call("add", {})


def test_no_secret_is_in_any_repr() -> None:
    by_command = McpServer.stdio("/usr/bin/tool", ["--key", CANARY], env={"TOKEN": CANARY})
    by_address = McpServer.http(
        f"https://me:{CANARY}@example.com:8443/mcp?key={CANARY}#{CANARY}",
        headers={"Authorization": f"Bearer {CANARY}"},
    )

    for shown in (by_command, by_address, by_command._endpoint, by_address._endpoint):  # pyright: ignore[reportPrivateUsage]
        assert CANARY not in repr(shown)
        assert CANARY not in str(shown)
    assert repr(by_command) == "McpServer('tool', not connected)"
    assert repr(by_address) == "McpServer('https://example.com:8443/mcp', not connected)"


def test_what_an_error_says_is_told_without_secrets() -> None:
    error = ExceptionGroup("group", [ExceptionGroup("inner", [ValueError(f"bad\n{CANARY} key")])])

    assert describe_error(error, [CANARY]) == "ValueError: bad [secret] key"
    assert hide("a b c", ["b"]) == "a b c"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: McpServer.stdio(""), "needs a command"),
        (lambda: McpServer.stdio("npx", "-y server"), r'args=\["-y", "the-package"\]'),
        (lambda: McpServer.stdio("npx", ["a\0b"]), "texts without NUL"),
        (lambda: McpServer.stdio("npx", env={"A": 1}), "a int"),
        (lambda: McpServer.stdio("npx", connect_timeout=0), "connect_timeout must be"),
        (lambda: McpServer.http("example.com/mcp"), "start with http:// or https://"),
        (lambda: McpServer.http("file:///etc/passwd"), "start with http:// or https://"),
        (lambda: McpServer.http("http://[::1"), "start with http:// or https://"),
        (lambda: McpServer.http("http://a:99999999/b"), "its port, if any, must be below 65536"),
        (lambda: McpServer.http(None), "start with http:// or https://"),
        (lambda: McpServer.http("http://a/b", headers={"A b": "c"}), "header name"),
        (lambda: McpServer.http("http://a/b", headers={"A": "c\nd"}), "not printable ASCII"),
        (lambda: UseMcp("npx"), "is not an McpServer"),
        (lambda: UseMcp(server(), prefix="a b"), "not valid in the name"),
        (lambda: UseMcp(server(), include="add"), r"write include=\[...\]"),
        (lambda: UseMcp(server(), exclude="add"), r"write exclude=\[...\]"),
        (lambda: UseMcp(server(), timeout=-1), "timeout must be"),
        (lambda: UseMcp(server(), effects="once"), "known: pure, idempotent, external"),
        (lambda: UseMcp(server(), effects={"add": "once"}), "known: pure"),
        (lambda: UseMcp(server(), max_result_chars=0), "max_result_chars must be"),
    ],
)
def test_a_wrong_setting_is_named(make: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        make()


def test_a_header_value_that_can_not_be_sent_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as raised:
        McpServer.http("http://a/b", headers={"A": f"{CANARY}\n"})

    assert CANARY not in str(raised.value)


def test_a_command_line_in_place_of_arguments_is_not_shown() -> None:
    with pytest.raises(ConfigurationError) as raised:
        McpServer.stdio("npx", f"--key {CANARY}")

    assert CANARY not in str(raised.value)


def test_an_ipv6_address_keeps_its_brackets() -> None:
    assert McpServer.http("http://me:pass@[::1]:8080/mcp").name == "http://[::1]:8080/mcp"


def test_what_an_address_carries_is_hidden_in_every_form() -> None:
    reached = McpServer.http(
        "https://me%40home:pass%20word%21@example.com/mcp?key=abc%2Fdefgh&mode=x&flagged-user",
        headers={"X-Mode": "fast"},
    )
    basic = b64encode(b"me@home:pass word!").decode()
    for secret in ("pass%20word%21", "pass word!", "abc%2Fdefgh", "abc/defgh", basic):
        assert reached.without_secrets(f"<{secret}>") == "<[secret]>"
    assert reached.without_secrets("fast x me") == "fast x me"


@pytest.mark.parametrize(("value", "shown"), [("1234567", "1234567"), ("12345678", "[secret]")])
def test_values_of_eight_characters_and_more_are_hidden(value: str, shown: str) -> None:
    assert McpServer.stdio("npx", env={"MODE": value}).without_secrets(value) == shown


def ran(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_the_capability_loads_neither_mcp_nor_anyio() -> None:
    loaded = ran(
        "import sys\nfrom stepwell.capabilities.mcp import McpServer, UseMcp\n"
        "McpServer.stdio('npx')\nprint(*sys.modules)"
    ).split()

    assert "stepwell.capabilities.mcp.server" in loaded
    assert {"mcp", "mcp_types", "anyio", "httpx2", "pydantic"}.isdisjoint(loaded)


def test_a_missing_package_is_named_with_how_to_install_it() -> None:
    said = ran(
        "import sys\nsys.modules['mcp'] = None\n"
        "from stepwell.capabilities.mcp import McpServer\n"
        "from stepwell.errors import ConfigurationError\n"
        "try:\n    McpServer.stdio('npx')\nexcept ConfigurationError as e:\n    print(e)"
    )

    assert said.endswith("run pip install 'stepwell[mcp]'")


# Names


@pytest.mark.parametrize(
    ("name", "prefix", "seen"),
    [
        ("add", "", "add"),
        ("add", "calc_", "calc_add"),
        ("odd.name/with spaces", "", "odd_name_with_spaces"),
        ("größe", "", "gr__e"),
        ("a" * 64, "", "a" * 64),
    ],
)
def test_names_become_what_all_providers_accept(name: str, prefix: str, seen: str) -> None:
    assert usable_name(name, prefix) == seen


def test_long_names_are_cut_but_stay_apart() -> None:
    one, other = usable_name("a" * 100 + "1"), usable_name("a" * 100 + "2")

    assert len(one) == len(other) == 64
    assert one != other


# Arguments


def test_missing_and_unknown_arguments_are_told_before_anything_is_sent() -> None:
    strict = tool(
        {
            "type": "object",
            "properties": {"item": {}, "count": {}},
            "required": ["item", "count"],
            "additionalProperties": False,
        }
    )

    with pytest.raises(InvalidToolArgumentsError) as raised:
        strict.validate({"count": 1, "colour": "red"})
    assert "missing required arguments: item;" in str(raised.value)
    assert "unknown arguments: colour." in str(raised.value)
    assert "It takes: item, count." in str(raised.value)
    assert strict.validate({"item": "a", "count": "x"}) == {"item": "a", "count": "x"}


def test_what_the_schema_leaves_open_is_the_servers_business() -> None:
    assert tool({"type": "object"}).validate({"any": 1}) == {"any": 1}
    by_pattern = {"additionalProperties": False, "patternProperties": {"^x": {}}}
    assert tool(by_pattern).validate({"xy": 1}) == {"xy": 1}


def test_what_a_schema_requires_that_is_no_name_is_passed_over() -> None:
    odd = tool({"type": "object", "required": [["a"], 5, "item"]})

    assert odd.validate({"item": 1}) == {"item": 1}
    with pytest.raises(InvalidToolArgumentsError, match="missing required arguments: item"):
        odd.validate({})


def test_arguments_that_are_no_json_are_refused() -> None:
    with pytest.raises(InvalidToolArgumentsError, match="can't be sent as JSON"):
        tool({}).validate({"text": "\ud800"})


# Results


def test_texts_are_joined_and_structured_content_is_not_told_twice() -> None:
    assert format_result(text("a", "b"), limit=99) == "a\nb"
    assert format_result(text('{"a": 1}', structured={"a": 1}), limit=99) == '{"a": 1}'
    assert format_result(text("3", structured={"result": 3}), limit=99) == "3"
    assert format_result(text("x", "y", structured={"result": ["x", "y"]}), limit=99) == "x\ny"
    assert format_result(text("rows", structured={"n": 2}), limit=99) == 'rows\n{"n":2}'
    assert format_result(text(structured={"n": 2}), limit=99) == '{"n":2}'
    assert format_result(text(), limit=99) == "(The tool returned no output.)"


def test_a_result_that_is_too_long_is_cut_with_a_note() -> None:
    assert format_result(text("abcdef"), limit=4) == "abcd... [2 more characters]"


def test_an_error_is_a_failure() -> None:
    assert format_result(text("no such file", is_error=True), limit=99) == ToolFailure(
        "no such file"
    )
