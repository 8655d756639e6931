"""How MCP servers are reached: a command that is started, or an address. No secret ever prints."""

import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, unquote_plus, unquote_to_bytes, urlsplit

from msgspec import Struct

from stepwell.capabilities.mcp.ending import Ending
from stepwell.errors import ConfigurationError
from stepwell.parameters import check_mapping

Streams = AbstractAsyncContextManager[Any]
"""A transport of the SDK's: a block that gives a stream to read from and one to write to."""

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Launch(Protocol):
    """A way to a server."""

    @property
    def label(self) -> str:
        """What to call the server as long as it has no better name; without secrets."""
        ...

    @property
    def secrets(self) -> Collection[str]:
        """What must not be told to anyone."""
        ...

    def streams(self, ending: Ending, /) -> Streams:
        """Connects while the block lasts."""
        ...


class Command(Struct, frozen=True, kw_only=True, eq=False):
    """A server that is started as a process of its own and talks over its standard streams."""

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
        """Checked, so that a mistake shows before anything is started."""
        if not command or not isinstance(command, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"an MCP server needs a command, got {command!r:.80}")
        if isinstance(args, str):
            raise ConfigurationError(
                "args wants a list, got a text (not shown, since it may hold a secret); write for "
                'example args=["-y", "the-package"]'
            )
        if not isinstance(args, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"args wants a list, got a {type(args).__name__}")
        if not isinstance(cwd, str | PathLike | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"cwd is a path, got {cwd!r:.80}")
        given = {} if env is None else dict(check_mapping(env, "env"))
        for text in (command, *args, *given, *given.values()):
            if not isinstance(text, str) or "\0" in text:
                raise ConfigurationError(
                    f"command, args and env of an MCP server are texts without NUL, and one is "
                    f"{'such a text' if isinstance(text, str) else f'a {type(text).__name__}'}"
                )
        return cls(
            command=command, args=tuple(args), env=given, cwd=None if cwd is None else Path(cwd)
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

    def streams(self, ending: Ending, /) -> Streams:
        """Runs the process while the block lasts."""
        from stepwell.capabilities.mcp.process import process_streams

        return process_streams(self, ending)


class Address(Struct, frozen=True, kw_only=True, eq=False):
    """A server that is reached over streamable HTTP."""

    url: str
    headers: Mapping[str, str] = {}

    @classmethod
    def of(cls, url: str, headers: Mapping[str, str] | None) -> "Address":
        """Checked, so that a mistake shows before anything is sent."""
        if not _is_usable(url):
            raise ConfigurationError(
                "the url of an MCP server must begin with http:// or https:// and name a host, "
                "and its port, if any, is below 65536, for example "
                'McpServer.http("https://example.com:8443/mcp")'
            )
        given = {} if headers is None else dict(check_mapping(headers, "headers"))
        for name, value in given.items():
            if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ConfigurationError(f"{name!r:.80} can't be the name of a header")
            if not isinstance(value, str) or not value.isascii() or not value.isprintable():
                raise ConfigurationError(
                    f"the value of header {name!r} is not printable ASCII text; it is not shown "
                    "here, since it may be secret"
                )
        return cls(url=url, headers=given)

    @property
    def label(self) -> str:
        """The address without credentials, query and fragment."""
        parts = urlsplit(self.url)
        place = parts.netloc.rpartition("@")[2].lower()
        return f"{parts.scheme}://{place}{parts.path}"

    @property
    def secrets(self) -> Collection[str]:
        """The values of its headers, and what the address carries beside the place, also in the
        forms in which both are sent."""
        parts = urlsplit(self.url)
        user, password = parts.username or "", parts.password or ""
        basic = b64encode(unquote_to_bytes(f"{user}:{password}")).decode()
        asked = (pair.partition("=")[2] or pair for pair in parts.query.split("&"))
        beside = (user, password, parts.query, parts.fragment, *asked)
        tokens = (value.rpartition(" ")[2] for value in self.headers.values())
        plain = (decode(part) for part in beside for decode in (unquote, unquote_plus))
        found = (*self.headers.values(), *tokens, *beside, *plain, basic if user else "")
        return tuple(dict.fromkeys(filter(None, found)))

    def __repr__(self) -> str:
        return f"Address({self.label!r}, headers {sorted(self.headers)})"

    def streams(self, _: Ending, /) -> Streams:
        """Sends requests while the block lasts."""
        from stepwell.capabilities.mcp.web import web_streams

        return web_streams(self)


def _is_usable(url: Any) -> bool:
    """Whether a request could be sent there."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a bracket that is not closed, a port that is none
        return False


def need_mcp() -> None:
    """Raises ``ConfigurationError`` where the optional package is not installed."""
    if find_spec("mcp") is None:
        raise ConfigurationError(
            "MCP servers need the mcp package, which is not installed; run "
            "pip install 'stepwell[mcp]'"
        )


def seconds(given: Any, name: str) -> float:
    """A number of seconds above zero."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not 0 < given < 1e9:
        raise ConfigurationError(f"{name} must be a number of seconds above 0, got {given!r:.80}")
    return float(given)
