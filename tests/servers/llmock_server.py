"""llmock: a provider's server that breaks on demand and grades the client that it served.

Behaviours are queued through its control API and used up by the requests that follow. Without
any, it calls an offered tool that fits the prompt and answers once the tool's result is there.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.servers.server_process import running

_ADDRESS = re.compile(r"Uvicorn running on (http://\S+)")
_PROGRAM = Path(__file__).parent / "serve_llmock.py"


@contextmanager
def llmock_running() -> Iterator["Llmock"]:
    """An llmock on a free port while the block lasts."""
    command = [sys.executable, str(_PROGRAM)]
    with running("llmock", command, _ADDRESS) as url, httpx2.Client(base_url=url) as control:
        yield Llmock(url, control)


class Llmock:
    """A running llmock: where it answers, how it shall break, how the client did."""

    def __init__(self, url: str, control: httpx2.Client) -> None:
        self.url = url
        self._control = control

    def base_url(self, wire: str) -> str:
        """The base URL for a wire format: chat, responses, anthropic or gemini."""
        paths = {"anthropic": "/anthropic/v1", "gemini": "/gemini/v1beta"}
        return self.url + paths.get(wire, "/v1")

    def fail(self, status: int, *, times: int | None = 1, **more: Any) -> None:
        """Answers the next requests with an error; `more`: retry_after, message, code."""
        self.queue(type="fail", status=status, times=times, **more)

    def rate_limit(self, *, times: int = 1, retry_after: float = 1.0) -> None:
        """429 with a Retry-After."""
        self.fail(429, times=times, retry_after=retry_after)

    def context_overflow(self, wire: str) -> None:
        """The provider's own "prompt too long", in its own words."""
        words = {
            "anthropic": "prompt is too long: 210000 tokens > 200000 maximum",
            "gemini": "The input token count (1200000) exceeds the maximum number of tokens "
            "allowed (1048576).",
        }
        openai = (
            "This model's maximum context length is 128000 tokens. However, your messages "
            "resulted in 140000 tokens."
        )
        code = None if wire in words else "context_length_exceeded"
        self.fail(400, message=words.get(wire, openai), code=code)

    def disconnect(self, *, after_chunks: int = 1, times: int = 1) -> None:
        """Drops the connection in the middle of the next stream."""
        self._break_stream("disconnect", after_chunks, times)

    def truncate(self, *, after_chunks: int = 1, times: int = 1) -> None:
        """Ends the next stream early and cleanly, without a finish reason."""
        self._break_stream("truncate", after_chunks, times)

    def corrupt(self, *, after_chunks: int = 1, times: int = 1) -> None:
        """Sends an event that is not valid JSON in the next stream."""
        self._break_stream("malformed", after_chunks, times)

    def stall(self, seconds: float, *, after_chunks: int = 1, times: int = 1) -> None:
        """Sends nothing for a while in the middle of the next stream."""
        self._break_stream("stall", after_chunks, times, stall_seconds=seconds)

    def delay(self, seconds: float, *, times: int = 1) -> None:
        """Holds the next response back."""
        self.queue(type="delay", seconds=seconds, times=times)

    def reply(self, text: str, *, finish_reason: str | None = None) -> None:
        """Answers the next request that gets an answer with this text."""
        self.queue(type="reply", text=text, finish_reason=finish_reason)

    def call_tool(self, name: str, *several: dict[str, Any], text: str | None = None) -> None:
        """Calls a tool in the next answer, once for each of the arguments given."""
        calls = [{"name": name, "arguments": arguments} for arguments in several or ({},)]
        self.queue(type="reply", tool_calls=calls, text=text)

    def break_tool_call(self, kind: str) -> None:
        """Spoils the next tool call: `malformed_arguments` or `unknown_tool`."""
        self.queue(type="tool_fault", kind=kind)

    def queue(self, **behaviour: Any) -> None:
        """Queues a behaviour in llmock's own words."""
        answer = self._control.post("/_llmock/scenario", json={"behaviors": [behaviour]})
        if answer.is_error:
            raise AssertionError(f"llmock refused {behaviour}: {answer.text}")

    def requests(self) -> list[dict[str, Any]]:
        """Every request since the reset: path, body, status, fault, timing."""
        return self._control.get("/_llmock/requests").raise_for_status().json()["requests"]

    def findings(self, severity: str = "error") -> list[str]:
        """What llmock holds against the client, as `code: title`; errors unless told otherwise."""
        verdict = self._control.get("/_llmock/verdict").raise_for_status().json()
        found = [finding for finding in verdict["findings"] if finding["severity"] == severity]
        return [f"{finding['code']}: {finding['title']}" for finding in found]

    def reset(self) -> None:
        """Forgets requests and queued behaviours."""
        self._control.post("/_llmock/reset").raise_for_status()

    def _break_stream(self, kind: str, after_chunks: int, times: int, **more: Any) -> None:
        self.queue(type="stream_fault", kind=kind, after_chunks=after_chunks, times=times, **more)
