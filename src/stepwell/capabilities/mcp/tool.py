"""Adapts a tool of an MCP server. The server validates the arguments; only missing and unknown ones
are refused here.
"""

from collections.abc import Mapping
from typing import Any, cast

from msgspec import json

from stepwell.capabilities.mcp.definitions import ToolDefinition
from stepwell.capabilities.mcp.errors import McpError
from stepwell.capabilities.mcp.results import format_result
from stepwell.capabilities.mcp.server import McpServer
from stepwell.errors import InvalidToolArgumentsError
from stepwell.models import ToolSchema
from stepwell.tools import ToolContext, ToolEffect, ToolFailure


class McpTool:
    """Calls one tool of a server. A timeout or a cancellation also cancels the call there."""

    parallel = True

    def __init__(
        self,
        server: McpServer,
        definition: ToolDefinition,
        *,
        name: str,
        effect: ToolEffect,
        timeout: float | None,
        max_result_chars: int,
    ) -> None:
        self._server = server
        self._name = definition.name
        self._limit = max_result_chars
        self.effect = effect
        self.timeout = timeout
        self.schema = ToolSchema(
            name=name, description=definition.description, parameters=definition.parameters
        )

    @property
    def server(self) -> McpServer:
        """The server of the tool."""
        return self._server

    def __repr__(self) -> str:
        return f"McpTool({self.schema.name!r} of {self._server!r})"

    def validate(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments unchanged. Raises ``InvalidToolArgumentsError`` if some are missing,
        unknown or can't be sent."""
        schema = self.schema.parameters
        known = cast("Mapping[str, Any]", schema.get("properties") or {})
        required = cast("list[Any]", schema.get("required") or [])
        missing = [name for name in required if isinstance(name, str) and name not in arguments]
        is_closed = schema.get("additionalProperties") is False and not schema.get(
            "patternProperties"
        )
        unknown = [name for name in arguments if name not in known] if is_closed else []
        if missing or unknown:
            problems = [f"missing required arguments: {', '.join(missing)}"] if missing else []
            problems += [f"unknown arguments: {', '.join(unknown)}"] if unknown else []
            raise InvalidToolArgumentsError(
                f"Tool {self.schema.name!r} can't be called like this; {'; '.join(problems)}. It "
                f"takes: {', '.join(known) or 'nothing'}."
            )
        try:
            json.encode(arguments)
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
            raise InvalidToolArgumentsError(
                f"The arguments of tool {self.schema.name!r} can't be sent as JSON: {error}"
            ) from None
        return dict(arguments)

    async def invoke(self, arguments: dict[str, Any], context: ToolContext) -> str | ToolFailure:
        """Call the tool. A refusal or the end of the server is a failure that the model sees."""

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            fraction = min(max(progress / total, 0.0), 1.0) if total and total > 0 else None
            context.progress(self._server.without_secrets(message or f"{progress:g}"), fraction)

        try:
            result = await self._server.call(self._name, arguments, on_progress)
        except McpError as error:
            return ToolFailure(str(error))
        return format_result(result, limit=self._limit, clean=self._server.without_secrets)
