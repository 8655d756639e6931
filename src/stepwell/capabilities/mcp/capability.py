"""``UseMcp``: the tools of a connected MCP server, as tools of an agent."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from stepwell.agent.plan import AgentPlan, several
from stepwell.capabilities.mcp.definitions import ToolDefinition, usable_name
from stepwell.capabilities.mcp.launch import seconds
from stepwell.capabilities.mcp.server import McpServer
from stepwell.capabilities.mcp.tool import McpTool
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_texts
from stepwell.tools import ToolEffect, Tools
from stepwell.tools.registry import as_tool

DEFAULT_TIMEOUT = 60.0
DEFAULT_RESULT_CHARS = 50_000
MOST_TOOLS = 128
"""Providers take no more; a model can't choose among so many anyway."""


class UseMcp:
    """Gives an agent the tools of an MCP server that is connected to.

    ``include`` and ``exclude`` choose among them by the server's own names; ``prefix`` is put
    before each name, where two servers have tools of one name. ``timeout`` holds for each call.
    ``effects`` says what may be done again after a crash, for all tools or by name; else a tool
    that calls itself read-only is ``pure``, one that calls itself idempotent is so, and any other
    ``external``. A result of more than ``max_result_chars`` is cut off with a note.

    ::

        async with McpServer.http("https://example.com/mcp") as server:
            agent = Agent(model, capabilities=[UseMcp(server, include=["search"])])
    """

    def __init__(
        self,
        server: McpServer,
        *,
        prefix: str | None = None,
        include: Iterable[str] | None = None,
        exclude: Iterable[str] = (),
        timeout: float | None = DEFAULT_TIMEOUT,
        effects: Mapping[str, ToolEffect | str] | ToolEffect | str | None = None,
        max_result_chars: int = DEFAULT_RESULT_CHARS,
    ) -> None:
        if not isinstance(server, McpServer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{server!r:.80} is not an McpServer; make one with McpServer.stdio(command, args) "
                "or McpServer.http(url)"
            )
        if prefix is not None and (not isinstance(prefix, str) or usable_name(prefix) != prefix):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"prefix {prefix!r:.80} can't begin the name of a tool; use letters, digits, _ "
                "and -"
            )
        if type(max_result_chars) is not int or max_result_chars < 1:
            raise ConfigurationError(
                f"max_result_chars must be 1 or more, got {max_result_chars!r:.80}"
            )
        self._server = server
        self._prefix = prefix or ""
        self._include = None if include is None else _names(include, "include")
        self._exclude = _names(exclude, "exclude")
        self._timeout = None if timeout is None else seconds(timeout, "timeout")
        self._effects = _effects(effects)
        self._max_result_chars = max_result_chars

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """The plan with the server's tools."""
        if not self._server.is_connected:
            raise ConfigurationError(
                f"MCP server {self._server.name!r} is not connected; build the agent inside its "
                "block: async with McpServer.stdio(...) as server: agent = Agent(model, "
                "capabilities=[UseMcp(server)])"
            )
        tools = tuple(self._tools())
        _refuse_clashes(tools)
        return plan.with_tools(*tools).when_complete(_named_clashes)

    def _tools(self) -> Iterator[McpTool]:
        for definition in self._chosen():
            yield McpTool(
                self._server,
                definition,
                name=usable_name(definition.name, self._prefix),
                effect=self._effect(definition),
                timeout=self._timeout,
                max_result_chars=self._max_result_chars,
            )

    def _chosen(self) -> list[ToolDefinition]:
        offered = self._server.tools
        known = [definition.name for definition in offered]
        by_name = self._effects if isinstance(self._effects, Mapping) else {}
        asked = {"include": self._include or (), "exclude": self._exclude, "effects": by_name}
        for setting, names in asked.items():
            unknown = [name for name in names if name not in known]
            if unknown:
                raise ConfigurationError(
                    f"{setting} names tools that MCP server {self._server.name!r} does not have: "
                    f"{', '.join(map(repr, unknown))}; it has: {', '.join(known) or '(none)'}"
                )
        wanted = set(known if self._include is None else self._include) - set(self._exclude)
        chosen = [definition for definition in offered if definition.name in wanted]
        if len(chosen) > MOST_TOOLS:
            raise ConfigurationError(
                f"MCP server {self._server.name!r} has {len(chosen)} tools, and an agent takes at "
                f"most {MOST_TOOLS} of one server; choose with UseMcp(server, include=[...])"
            )
        return chosen

    def _effect(self, definition: ToolDefinition) -> ToolEffect:
        if isinstance(self._effects, ToolEffect):
            return self._effects
        return self._effects.get(definition.name) or definition.hint or ToolEffect.EXTERNAL


def _names(given: Iterable[str], name: str) -> tuple[str, ...]:
    return check_texts(several(given, name), name)


def _effects(given: Any) -> dict[str, ToolEffect] | ToolEffect:
    try:
        if given is None:
            return {}
        if isinstance(given, Mapping):
            pairs = cast("Mapping[str, str]", given)
            return {name: ToolEffect(word) for name, word in pairs.items()}
        return ToolEffect(given)
    except ValueError as error:
        raise ConfigurationError(
            f"effects: {error}; known: {', '.join(ToolEffect)}. Write effects='pure', or "
            "effects={'tool': 'idempotent'}"
        ) from None


def _refuse_clashes(tools: Iterable[McpTool]) -> None:
    """Two names of one server that become one, such as ``a.b`` and ``a_b``, or one listed twice."""
    seen: set[str] = set()
    for tool in tools:
        if tool.schema.name in seen:
            raise ConfigurationError(
                f"MCP server {tool.server.name!r} has two tools that a model would both see as "
                f"{tool.schema.name!r}; leave one out with UseMcp(server, exclude=[...])"
            )
        seen.add(tool.schema.name)


def _named_clashes(plan: AgentPlan) -> AgentPlan:
    """The whole plan, unless a tool of a server has the name of another tool in it."""
    owners: dict[str, str] = {}
    for given in plan.tools:
        for tool in given if isinstance(given, Tools) else (as_tool(given),):
            is_ours = isinstance(tool, McpTool)
            owner = f"MCP server {tool.server.name!r}" if is_ours else "the agent"
            other = owners.setdefault(tool.schema.name, owner)
            if other != owner and (is_ours or other.startswith("MCP")):
                raise ConfigurationError(
                    f"{other} and {owner} both have a tool {tool.schema.name!r}; give one a "
                    "prefix with UseMcp(server, prefix='...'), or leave it out with exclude=[...]"
                )
    return plan
