"""aimock (@copilotkit/aimock): answers by fixture in all four wire formats, from one port.

A fixture is `{"match": {...}, "response": {...}}`; the first that matches answers. Its shapes are
described in the package's own README.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.servers.node import PACKAGES, find_node, why_missing
from tests.servers.server_process import running

HERE = Path(__file__).parent
PROGRAM = PACKAGES / "@copilotkit" / "aimock" / "dist" / "cli.js"
FIXTURES = HERE / "aimock_fixtures.json"
_ADDRESS = re.compile(r"listening on (http://\S+)")
# Small pieces, so that texts and arguments really arrive in several.
_CHARACTERS_PER_CHUNK = "8"


def missing() -> str | None:
    """Why aimock can't run here, in words; None when it can."""
    return why_missing(PROGRAM)


@contextmanager
def aimock_running() -> Iterator["Aimock"]:
    """An aimock that answers the fixtures of aimock_fixtures.json while the block lasts."""
    found = find_node()
    if found is None:
        raise RuntimeError(str(missing()))
    preload = str(HERE / "end_with_parent.cjs")
    command = [found.node, "--require", preload, str(PROGRAM), "--port", "0"]
    command += ["--host", "127.0.0.1", "--fixtures", str(FIXTURES), "--strict"]
    command += ["--chunk-size", _CHARACTERS_PER_CHUNK, "--log-level", "info"]
    with running("aimock", command, _ADDRESS) as url, httpx2.Client(base_url=url) as control:
        yield Aimock(url, control)


class Aimock:
    """A running aimock: where it answers, what it shall answer, what it was asked."""

    def __init__(self, url: str, control: httpx2.Client) -> None:
        self.url = url
        self._control = control
        self._shared = json.loads(FIXTURES.read_text())["fixtures"]

    def base_url(self, wire: str) -> str:
        """The base URL for a wire format: chat, responses, anthropic or gemini."""
        paths = {"chat": "/v1", "responses": "/v1", "anthropic": "/v1", "gemini": "/v1beta"}
        return self.url + paths[wire]

    def load(self, *fixtures: Mapping[str, Any]) -> None:
        """Adds fixtures; they answer before those of the file."""
        self._post("reset")
        self._post("fixtures", {"fixtures": [*fixtures, *self._shared]})

    def fail_next(self, status: int, message: str = "injected by the test") -> None:
        """Answers the next request, and only that, with an error of this status."""
        self._post("error", {"status": status, "body": {"message": message}})

    def journal(self) -> list[dict[str, Any]]:
        """The requests so far, in order: method, path, headers, body, and the response's status."""
        answer = self._control.get("/__aimock/journal")
        return answer.raise_for_status().json()

    def reset(self) -> None:
        """Forgets the journal and all but the file's fixtures."""
        self.load()

    def _post(self, what: str, body: Mapping[str, Any] | None = None) -> None:
        answer = self._control.post(f"/__aimock/{what}", json=body or {})
        if answer.is_error:
            raise AssertionError(f"aimock refused {what}: {answer.text}")
