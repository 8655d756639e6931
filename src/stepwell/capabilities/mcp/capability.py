"""``UseMcp``: adds the tools of a connected MCP server to an agent."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from stepwell.agent.plan import AgentPlan, several
from stepwell.capabilities.mcp.definitions import ToolDefinition, usable_name
from stepwell.capabilities.mcp.server import McpServer
from stepwell.capabilities.mcp.tool import McpTool
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_integer, check_seconds, check_texts
from stepwell.tools import ToolEffect, Tools
from stepwell.tools.registry import as_tool

DEFAULT_TIMEOUT = 60.0
DEFAULT_RESULT_CHARS = 50_000
MAX_TOOLS = 128
"""Providers accept no more, and a model can't choose well among so many."""


class UseMcp:
    """Adds the tools of a connected MCP server to an agent.

    ``include`` and ``exclude`` select tools by the server's own names. ``prefix`` is added to each
    name, in case two servers have tools with the same name. ``timeout`` applies to each call.
    ``effects`` sets the effect of all tools or of tools by name. By default a tool that the server
    marks as read-only is ``pure``, one marked as idempotent is ``idempotent``, and any other is
    ``external``. A result over ``max_result_chars`` is truncated, with a note.

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
                f"{server!r:.80} is not an McpServer. Create one with McpServer.stdio(command, "
                "args) or McpServer.http(url)"
            )
        if prefix is not None and (not isinstance(prefix, str) or usable_name(prefix) != prefix):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"prefix {prefix!r:.80} is not valid in the name of a tool; use letters, digits, _ "
                "and -"
            )
        check_integer(max_result_chars, "max_result_chars", least=1)
        self._server = server
        self._prefix = prefix or ""
        self._include = None if include is None else _names(include, "include")
        self._exclude = _names(exclude, "exclude")
        self._timeout = None if timeout is None else check_seconds(timeout, "timeout")
        self._effects = _effects(effects)
        self._max_result_chars = max_result_chars

    def configure(self, plan: AgentPlan) -> AgentPlan:
        """Return the plan with the server's tools."""
        if not self._server.is_connected:
            raise ConfigurationError(
                f"MCP server {self._server.name!r} is not connected; build the agent inside its "
                "block: async with McpServer.stdio(...) as server: agent = Agent(model, "
                "capabilities=[UseMcp(server)])"
            )
        tools = tuple(self._tools())
        _check_own_clashes(tools)
        return plan.with_tools(*tools).when_complete(_check_name_clashes)

    def _tools(self) -> Iterator[McpTool]:
        for definition in self._select_definitions():
            yield McpTool(
                self._server,
                definition,
                name=usable_name(definition.name, self._prefix),
                effect=self._effect(definition),
                timeout=self._timeout,
                max_result_chars=self._max_result_chars,
            )

    def _select_definitions(self) -> list[ToolDefinition]:
        offered = self._server.tools
        known = [definition.name for definition in offered]
        by_name = self._effects if isinstance(self._effects, Mapping) else {}
        settings = {"include": self._include or (), "exclude": self._exclude, "effects": by_name}
        for setting, names in settings.items():
            unknown = [name for name in names if name not in known]
            if unknown:
                raise ConfigurationError(
                    f"{setting} names tools that MCP server {self._server.name!r} does not have: "
                    f"{', '.join(map(repr, unknown))}; its tools: {', '.join(known) or '(none)'}"
                )
        names_to_use = set(known if self._include is None else self._include) - set(self._exclude)
        selected = [definition for definition in offered if definition.name in names_to_use]
        if len(selected) > MAX_TOOLS:
            raise ConfigurationError(
                f"MCP server {self._server.name!r} has {len(selected)} tools, but an agent accepts "
                f"at most {MAX_TOOLS} of one server; select some with UseMcp(server, include=[...])"
            )
        return selected

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


def _check_own_clashes(tools: Iterable[McpTool]) -> None:
    """Raise if two names of one server become equal, such as ``a.b`` and ``a_b``."""
    seen: set[str] = set()
    for tool in tools:
        if tool.schema.name in seen:
            raise ConfigurationError(
                f"MCP server {tool.server.name!r} has two tools whose name for the model would be "
                f"{tool.schema.name!r}; leave one out with UseMcp(server, exclude=[...])"
            )
        seen.add(tool.schema.name)


def _check_name_clashes(plan: AgentPlan) -> AgentPlan:
    """Return the plan. Raise if a tool of a server has the name of another tool in it."""
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
