"""How to reach MCP servers: a command to start, or a URL. Never prints a secret."""

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, unquote_plus, unquote_to_bytes, urlsplit

from msgspec import Struct

from stepwell.errors import ConfigurationError
from stepwell.parameters import check_mapping

Streams = AbstractAsyncContextManager[Any]
"""A transport of the SDK: a context manager that yields a stream to read and one to write."""

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
HTTP_TIMEOUT = 30.0
"""For connecting and writing. Reads have no limit: how long a call may take is the tool's
timeout."""
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class ConnectionEnd:
    """Whether a connection ended, and why. The first report wins."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self.reason = ""
        self.stderr_tail = ""
        """The last output of the server on stderr. For developers: no model sees it."""

    @property
    def has_happened(self) -> bool:
        """Whether the connection ended or is about to end."""
        return self._happened.is_set()

    def report(self, reason: str, *, stderr_tail: str = "") -> None:
        """Record the end, unless it was reported before."""
        if not self.has_happened:
            self.reason, self.stderr_tail = reason, stderr_tail
            self._happened.set()

    async def wait(self) -> None:
        """Wait for the end."""
        await self._happened.wait()


class Endpoint(Protocol):
    """A way to reach a server."""

    @property
    def label(self) -> str:
        """The default name of the server, without secrets."""
        ...

    @property
    def secrets(self) -> Collection[str]:
        """Values that must not appear in results, failures or logs."""
        ...

    def streams(self, end: ConnectionEnd, /) -> Streams:
        """Connect for the duration of the block."""
        ...


class Command(Struct, frozen=True, kw_only=True, eq=False):
    """A server that runs as a process and communicates over its standard streams."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = {}
    cwd: Path | None = None

    @classmethod
    def of(
        cls,
        command: str,
        args: Sequence[str],
        env: Mapping[str, str] | None,
        cwd: Path | str | None,
    ) -> "Command":
        """Check the arguments before anything is started."""
        if not command or not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"an MCP server needs a command, got {command!r:.80}")
        if isinstance(args, str):
            raise ConfigurationError(
                "args must be a list, got a text (not shown, because it may be secret). Write for "
                'example args=["-y", "the-package"]'
            )
        if not isinstance(args, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"args must be a list, got a {type(args).__name__}")
        if not isinstance(cwd, str | PathLike | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"cwd must be a path, got {cwd!r:.80}")
        values = {} if env is None else dict(check_mapping(env, "env"))
        for text in (command, *args, *values, *values.values()):
            if not isinstance(text, str) or "\0" in text:
                raise ConfigurationError(
                    "command, args and env of an MCP server must be texts without NUL characters; "
                    f"one "
                    f"{'contains NUL' if isinstance(text, str) else f'is a {type(text).__name__}'}"
                )
        return cls(
            command=command, args=tuple(args), env=values, cwd=None if cwd is None else Path(cwd)
        )

    @property
    def label(self) -> str:
        """The name of the program."""
        return Path(self.command).name

    @property
    def secrets(self) -> Collection[str]:
        """The values of its environment."""
        return tuple(self.env.values())

    def __repr__(self) -> str:
        return f"Command({self.label!r}, {len(self.args)} args, env {sorted(self.env)})"

    def streams(self, end: ConnectionEnd, /) -> Streams:
        """Run the process for the duration of the block."""
        from stepwell.capabilities.mcp.process import process_streams

        return process_streams(self, end)


class Address(Struct, frozen=True, kw_only=True, eq=False):
    """A server reached over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = {}

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str] | None) -> "Address":
        """Check the arguments before anything is sent."""
        if not _is_valid_url(url):
            raise ConfigurationError(
                "the url of an MCP server must start with http:// or https:// and name a host, and "
                "its port, if any, must be below 65536, for example "
                'McpServer.http("https://example.com:8443/mcp")'
            )
        values = {} if headers is None else dict(check_mapping(headers, "headers"))
        for name, value in values.items():
            if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"{name!r:.80} is not a valid header name")
            if not isinstance(value, str) or not value.isascii() or not value.isprintable():
                raise ConfigurationError(
                    f"the value of header {name!r} is not printable ASCII text (not shown, because "
                    "it may be secret)"
                )
        return cls(url=url, headers=values)

    @property
    def label(self) -> str:
        """The URL without credentials, query and fragment."""
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2].lower()
        return f"{parts.scheme}://{host}{parts.path}"

    @property
    def secrets(self) -> Collection[str]:
        """Header values, and credentials, query and fragment of the URL, also in the encodings in
        which they are sent."""
        parts = urlsplit(self.url)
        user, password = parts.username or "", parts.password or ""
        basic = b64encode(unquote_to_bytes(f"{user}:{password}")).decode()
        query_values = (pair.partition("=")[2] or pair for pair in parts.query.split("&"))
        url_parts = (user, password, parts.query, parts.fragment, *query_values)
        tokens = (value.rpartition(" ")[2] for value in self.headers.values())
        decoded = (decode(part) for part in url_parts for decode in (unquote, unquote_plus))
        found = (*self.headers.values(), *tokens, *url_parts, *decoded, basic if user else "")
        return tuple(dict.fromkeys(filter(None, found)))

    def __repr__(self) -> str:
        return f"Address({self.label!r}, headers {sorted(self.headers)})"

    @asynccontextmanager
    async def streams(self, _: ConnectionEnd, /) -> AsyncGenerator[Any]:
        """Send requests for the duration of the block."""
        from httpx2 import AsyncClient, Timeout
        from mcp.client.streamable_http import streamable_http_client

        from stepwell.models.http import no_cookies

        timeout = Timeout(HTTP_TIMEOUT, read=None)
        client = AsyncClient(headers=dict(self.headers), timeout=timeout, cookies=no_cookies())
        async with (
            client,
            streamable_http_client(
                self.url, http_client=client, max_sse_event_size=MAX_MESSAGE_BYTES
            ) as streams,
        ):
            yield streams


def _is_valid_url(url: Any) -> bool:
    """Return whether a request can be sent to this URL."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # an unclosed bracket, an invalid port
        return False


def require_mcp() -> None:
    """Raise ``ConfigurationError`` if the optional package is not installed."""
    if find_spec("mcp") is None:
        raise ConfigurationError(
            "MCP servers need the mcp package, which is not installed; run "
            "pip install 'stepwell[mcp]'"
        )
