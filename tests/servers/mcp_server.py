"""A real MCP server, written with the official SDK: over its standard streams, or over HTTP on a
loopback port. `python -m tests.servers.mcp_server [http]`.

Started over HTTP it prints its address and ends when its standard input closes.
"""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    EmbeddedResource,
    ListToolsResult,
    PaginatedRequestParams,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)
from pydantic import BaseModel, Field

ROOT = Path(__file__).parents[2]
COMMAND = sys.executable
ARGS = ("-m", "tests.servers.mcp_server")

logging.getLogger("mcp.shared.tool_name_validation").setLevel(logging.ERROR)  # of the odd name
server = MCPServer("example")
wire = os.dup(1)
"""Standard output as it was before the SDK took it for itself."""


class Line(BaseModel):
    item: str
    count: int = Field(ge=1)


class Order(BaseModel):
    lines: list[Line]
    to: Annotated[str, Field(description="Where to")] = "home"


class Receipt(BaseModel):
    number: int
    items: list[str]


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def echo(text: str) -> str:
    """Say it again."""
    return text


@server.tool()
def place(order: Order) -> Receipt:
    """Place an order."""
    return Receipt(number=7, items=[line.item for line in order.lines])


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool()
def refuse() -> str:
    """Answer with an error of the protocol."""
    raise MCPError(code=-32603, message="refused by the server")


@server.tool()
def read_environment(names: list[str]) -> list[str]:
    """Those of these variables that are set."""
    return [name for name in names if name in environment()]


@server.tool()
def repeat(text: str, times: int) -> str:
    """A large text."""
    return text * times


@server.tool(structured_output=False)
def picture() -> list[Any]:
    """A text, a picture, a resource and a link."""
    return [
        "Here:",
        Image(data=b"12345678", format="png"),
        EmbeddedResource(
            type="resource", resource=TextResourceContents(uri="memo://1", text="Remember.")
        ),
        ResourceLink(type="resource_link", name="more", uri="memo://2"),
    ]


@server.tool(structured_output=False)
def rows() -> CallToolResult:
    """Structured content that its text does not repeat."""
    return CallToolResult(
        content=[TextContent(type="text", text="two rows")], structured_content={"rows": [1, 2]}
    )


@server.tool()
async def work(steps: int, ctx: Context, pause: float = 0.0) -> str:
    """Work, and tell how far it is."""
    for step in range(1, steps + 1):
        await ctx.report_progress(step, steps, f"step {step}")
        await anyio.sleep(pause)
    return "worked"


@server.tool()
async def sleep(seconds: float, note: str = "") -> str:
    """Sleep. Writes to the file `note` that it began, and how it ended."""
    _note(note, "began")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        _note(note, "cancelled")
        raise
    _note(note, "slept")
    return "slept"


@server.tool()
def process_id() -> int:
    """The id of this process."""
    return os.getpid()


@server.tool()
def start_child() -> int:
    """Start a process that goes on by itself."""
    return subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL).pid


@server.tool()
def babble() -> str:
    """Write garbage to the wire, then answer."""
    os.write(wire, b'hello, this is no message\n{"json": "but no message"}\n\xff\xfe\x00\n\n')
    return "babbled"


@server.tool()
def leave(code: int, words: str = "") -> str:
    """End the process in the middle of the call."""
    sys.stderr.write(words)
    sys.stderr.flush()
    os._exit(code)


@server.tool()
def die() -> str:
    """Be killed in the middle of the call."""
    os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


@server.tool(name="odd.name/with spaces")
def odd() -> str:
    """A name that no provider takes."""
    return "odd"


def environment() -> dict[str, str]:
    """What this process was started with, as the system knows it."""
    held = Path("/proc/self/environ").read_bytes().decode()
    return dict(entry.split("=", 1) for entry in held.split("\0") if "=" in entry)


def _note(path: str, word: str) -> None:
    if path:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{word}\n")


# Another server: its tools come in pages, and its answers break its own promises.


async def _list(_: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
    page = 0 if params is None or params.cursor is None else int(params.cursor)
    tools = [
        Tool(
            name=f"tool_{page * 10 + n}",
            input_schema={"type": "object", "properties": {}, "additionalProperties": False},
            output_schema={"type": "object", "required": ["x"]} if n == 1 else None,
        )
        for n in range(10)
    ]
    last = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    return ListToolsResult(tools=tools, next_cursor=None if page + 1 == last else str(page + 1))


async def _call(_: Any, params: CallToolRequestParams) -> CallToolResult:
    if params.name.endswith("1"):
        return CallToolResult(content=[], structured_content={"y": 1})
    return CallToolResult(content=[])


async def _serve_pages() -> None:
    from mcp.server.stdio import stdio_server

    paged: Server[Any] = Server("paged", on_list_tools=_list, on_call_tool=_call)
    async with stdio_server() as (incoming, outgoing):
        await paged.run(incoming, outgoing, paged.create_initialization_options())


# A server of the years before 2026, which knows nothing of what the SDK asks first.


def _serve_as_of_old() -> None:
    answers: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "old", "version": "1"},
        },
        "tools/list": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "Good day."}]},
    }
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            known = answers.get(asked["method"])
            error = {"error": {"code": -32601, "message": "Method not found"}}
            body = error if known is None else {"result": known}
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)


# Running


async def _serve_http() -> None:
    import uvicorn

    app = server.streamable_http_app()
    config = uvicorn.Config(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
    web = uvicorn.Server(config)
    serving = asyncio.create_task(web.serve())
    while not web.started:  # noqa: ASYNC110 - it has no event to wait for
        await asyncio.sleep(0.01)
    port = web.servers[0].sockets[0].getsockname()[1]
    print(f"http://127.0.0.1:{port}/mcp {os.getpid()}", flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)
    web.should_exit = web.force_exit = True
    await serving


@contextmanager
def http_server(port: int = 0) -> Iterator[tuple[str, int]]:
    """The server over HTTP while the block lasts: its address and its process id."""
    import re

    from tests.servers.server_process import running

    command: Sequence[str] = (COMMAND, "-m", "tests.servers.mcp_server", "http", str(port))
    with running("mcp", command, re.compile(r"(http://\S+ \d+)\n")) as told:
        url, _, pid = told.partition(" ")
        yield url, int(pid)


def main() -> None:
    match sys.argv[1:2]:
        case ["http"]:
            asyncio.run(_serve_http())
        case ["pages"]:
            asyncio.run(_serve_pages())
        case ["garbage"]:
            print("Welcome to the example server!\n{not json", flush=True)
            server.run("stdio")
        case ["old"]:
            _serve_as_of_old()
        case ["mute"]:
            sys.stdin.buffer.read()
        case ["stubborn"]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            server.run("stdio")
            signal.pause()
        case ["broken"]:
            sys.stderr.write(f"no config: {environment().get('TOKEN')}\n")
            sys.exit(3)
        case _:
            server.run("stdio")


if __name__ == "__main__":
    main()
