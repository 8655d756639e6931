"""Real servers for the browser: ``stepwell serve`` in a process, on a port that it keeps when it is
killed and started again.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from stepwell.clock import SystemClock
from tests.browser.stage import HELD

ROOT = Path(__file__).parents[2]
AGENTS = "tests.browser.apps:agents"
OVER = ("completed", "stopped", "failed", "cancelled", "paused")
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:)(\d+)")
_LOOK_EVERY = 0.02
_CLOCK = SystemClock()
Found = TypeVar("Found")


def environment(**more: str) -> dict[str, str]:
    """This process's, without settings of Stepwell that a developer may have."""
    mine = os.environ  # noqa: TID251 - handed on to a process, as a shell would
    return {name: mine[name] for name in mine if not name.startswith("STEPWELL_")} | more


def until(look: Callable[[], Found], seconds: float = 20.0, what: str = "") -> Found:
    """What `look` gives once it is not false; fails after so many seconds."""
    pause, begun = threading.Event(), _CLOCK.monotonic()
    while not (found := look()):
        if _CLOCK.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds:g} s: {what or look}; at last {found!r}")
        pause.wait(_LOOK_EVERY)
    return found


class Server:
    """A server process and a client of its API."""

    def __init__(self, folder: Path, app: str = AGENTS, *, path: str = "", **settings: str) -> None:
        self.database = f"sqlite:///{folder / 'stepwell.db'}"
        self._command = ("tests.servers.stepwell_command", "serve", app, "--db", self.database)
        self._held = folder / "held"
        self._environment = environment(**settings, **{HELD: str(self._held)})
        self._output = folder / "server.log"
        self._path = path
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self.client = httpx2.Client(timeout=90)

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"{self.origin}{self._path}/"

    @property
    def origin(self) -> str:
        """Where every request of the page has to go."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start it, on the port that it had before."""
        with self._output.open("ab") as output:
            begin = output.tell()
            self._process = subprocess.Popen(
                (sys.executable, "-m", *self._command, "--port", str(self._port)),
                cwd=ROOT,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                # Ctrl-C is for pytest, which then ends the server in good order.
                start_new_session=True,
            )
        found = until(lambda: self._address(begin), 60, "an address of the server")
        self._port = int(found[2])

    def _address(self, begin: int) -> re.Match[str] | None:
        assert self._process is not None
        ended = self._process.poll() is not None
        said = self._output.read_bytes()[begin:].decode(errors="replace")
        found = _ADDRESS.search(said)
        assert found or not ended, f"the server ended; it said:\n{said}"
        return found

    @property
    def log(self) -> str:
        """All it said."""
        return self._output.read_text(errors="replace")

    def kill(self) -> None:
        """As ``kill -9`` does."""
        self._end(lambda process: process.kill())

    def stop(self) -> None:
        """In good order, and with force where that takes too long."""
        self._end(lambda process: process.terminate())
        self.client.close()

    def _end(self, how: Callable[[subprocess.Popen[bytes]], None]) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        how(process)
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(90)
        finally:
            assert process.stdin is not None
            process.stdin.close()

    @contextmanager
    def held(self, words: str) -> Iterator[None]:
        """In the block, no line of the stage goes on behind these words, however slow a page is."""
        self._held.write_text(words)
        try:
            yield
        finally:
            self._held.unlink()

    def get(self, path: str, **query: Any) -> Any:
        """A document of the API."""
        answer = self.client.get(f"{self.url}{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """What the API answers."""
        answer = self.client.post(f"{self.url}{path}", json=body)
        assert answer.status_code < 300, answer.text
        return answer.json()

    def send(self, content: str, agent: str = "stage", session: str = "") -> dict[str, Any]:
        """A message for a new session, or for that one."""
        if session:
            return self.post(f"agent/sessions/{session}/messages", {"content": content})
        body = {"content": content, "session": {"agent_type": agent}}
        return self.post("agent/messages", body)

    def ran(self, content: str, agent: str = "stage", seconds: float = 30.0) -> dict[str, Any]:
        """An execution that was sent, once it is over or waits."""
        return self.over(self.send(content, agent)["execution"]["id"], seconds)

    def over(self, execution: str, seconds: float = 30.0) -> dict[str, Any]:
        """That execution once it is over or waits."""

        def look() -> dict[str, Any] | None:
            seen = self.get(f"agent/executions/{execution}")
            return seen if seen["status"] in OVER else None

        return until(look, seconds, f"the end of execution {execution}")

    def messages(self, session: str) -> list[dict[str, Any]]:
        """All stored messages of a session, in order."""
        stored: list[dict[str, Any]] = []
        query: dict[str, Any] = {"limit": 200}
        while True:
            page = self.get(f"agent/sessions/{session}/messages", **query)
            stored = page["items"] + stored
            if not page["has_older"]:
                return stored
            query["before"] = page["older"]


@contextmanager
def serving(app: str = AGENTS, *, path: str = "", **settings: str) -> Iterator[Server]:
    """A server in a folder of its own, for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="stepwell-browser-") as folder:
        server = Server(Path(folder), app, path=path, **settings)
        try:
            server.start()
            yield server
        finally:
            server.stop()


def new_key(server: Server, user: str) -> str:
    """A key for that user, from the command line."""
    made = subprocess.run(
        (sys.executable, "-m", "stepwell", "keys", "create", "--user", user),
        cwd=ROOT,
        env=environment(STEPWELL_AUTH__MODE="keys", STEPWELL_DB=server.database),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return made.stdout.strip()
